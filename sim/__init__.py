"""The simulated rack: real kernels on emulated Vela-shaped hosts, see sim/README.md."""
