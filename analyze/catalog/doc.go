// Package catalog holds the meaning of codes and names: results of CUDA calls, Xids and SXids
// of the driver, metrics of NVML, and names of CUDA functions.
package catalog
