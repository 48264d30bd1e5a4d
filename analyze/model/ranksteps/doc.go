// Package ranksteps measures the steps of the ranks of a job: how long each step lasted, how long the host was
// blocked in it, and where GPU times are recorded, how long the GPU ran collectives, other kernels and copies.
// Steps begin at one collective of the communicator that most ranks share, so equal steps of several ranks have
// equal numbers without a common clock. In one recording without collectives, steps are those of package steps, and
// only ranks that keep pace are compared.
package ranksteps
