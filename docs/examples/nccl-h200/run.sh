#!/bin/sh
# run.sh FOLDER: in a checkout, on a guest with NVIDIA GPUs and PyTorch.
here=$(dirname "$0") out=$1 engine=$(mktemp -d)
ln -s "$PWD/plugins/module_utils" "$engine/gpudirect"
processor=$(sed -n '1,/^model\t/s/^\(cpu family\|model\)\t*: *//p' /proc/cpuinfo)
# shellcheck disable=SC2086  # two words
PYTHONPATH=$engine python3 "$here/make_files.py" "$out" "$(nproc)" $processor || exit
# Multicast by NVSwitch is not every guest's to use, and is no matter of topology files.
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV NCCL_NVLS_ENABLE=0
for name in none flat switch switches second_node untold elsewhere; do
    [ "$name" = none ] || export NCCL_TOPO_FILE="$out/$name.xml"
    [ "$name" = none ] || [ -e "$NCCL_TOPO_FILE" ] || continue
    export NCCL_TOPO_DUMP_FILE="$out/$name.dump.xml" NCCL_GRAPH_DUMP_FILE="$out/$name.graph.xml"
    timeout 90 python3 "$here/ranks.py" >"$out/$name.log" 2>&1
    echo "$name: $?"
    ./gpudirect audit "$out/$name.dump.xml" >"$out/$name.dump.audit" 2>&1
    [ "$name" = none ] || ./gpudirect audit / --compare "$out/$name.xml" >"$out/$name.compare.audit" 2>&1
done
./gpudirect audit / >"$out/machine.audit" 2>&1
