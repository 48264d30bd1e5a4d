//go:build linux

package record

import "github.com/gpurec/gpurec/record/kernelargs"

// kernelResolver is the goroutine that reads images of modules.
type kernelResolver struct {
	resolver *kernelargs.Resolver
	stop     chan struct{}
}

// newKernelResolver starts to find the parameters of kernels. It returns nil if the arguments of launches are
// not recorded.
func (s *Session) newKernelResolver() *kernelargs.Resolver {
	if s.opt.KernelArgs == 0 {
		return nil
	}
	k := &kernelResolver{stop: make(chan struct{})}
	k.resolver = kernelargs.NewResolver(func(pid int32, function int64, l kernelargs.Layout) {
		_ = s.probes.SetKernelLayout(pid, function, l) // without it, values of at most 8 bytes are read
	})
	s.kernels = k
	go k.resolver.Run(k.stop)
	return k.resolver
}

// close ends the goroutine. The row writer must have ended. It may be nil.
func (k *kernelResolver) close() {
	if k != nil {
		close(k.stop)
		k.resolver.Wait()
	}
}
