// Package kernelargs finds the parameters of kernels: how many there are, and where each value lies in
// the parameter buffer. It reads them from images of modules (cubins, fatbins, PTX) in the memory and the
// files of a process, and from calls of cuFuncGetParamInfo that the process makes itself.
package kernelargs
