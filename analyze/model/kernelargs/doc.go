// Package kernelargs reads the recorded arguments of kernel launches.
package kernelargs
