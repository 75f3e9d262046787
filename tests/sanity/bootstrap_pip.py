"""Stand-in for the script with which ansible-test puts pip into its environments.

ansible-test downloads that script from a site of its own; machines that reach only a package index cannot. The pip
that comes with Python serves as well: it installs pinned versions, and its own version decides nothing.
"""

import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
