// Package catalog explains codes and names: results of CUDA calls, Xids and SXids of the driver,
// NVML metrics, and names of CUDA functions.
package catalog
