"""Stand-in for the script with which ansible-test puts pip into its environments.

ansible-test downloads that script from a site of its own; machines that reach only a package index cannot. This one
takes the pip that comes with Python and lets it install the wanted packages, pip's own pinned version among them.
"""

import subprocess
import sys

# Options of the original that mean nothing to pip itself.
NOT_OF_PIP = ("--no-setuptools", "--no-wheel")

subprocess.check_call([sys.executable, "-m", "ensurepip"])
arguments = [argument for argument in sys.argv[1:] if argument not in NOT_OF_PIP]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", *arguments]))
