# Writes the files of cloud-init's "write_files" and prints their paths. It reads JSON with one key a line, no YAML.

function decoded(text) {
    sub(/^[ \t]*"[a-z]+": "/, "", text)
    sub(/",?[ \t]*$/, "", text)
    gsub(/\\\\/, "\001", text)
    gsub(/\\n/, "\n", text)
    gsub(/\\t/, "\t", text)
    gsub(/\\"/, "\"", text)
    gsub(/\001/, "\\", text)
    return text
}

/^[ \t]*"content": "/ { content = decoded($0); known = 1 }
/^[ \t]*"path": "/ { path = decoded($0) }
/^[ \t]*}/ {
    if (path != "" && known) {
        folder = path
        sub(/\/[^\/]*$/, "", folder)
        system("mkdir -p '" folder "'")
        printf "%s", content > path
        close(path)
        print path
    }
    path = ""
    known = 0
}
