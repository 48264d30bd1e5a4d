package kernelargs

import "slices"

// Parameter is the place of a parameter in the parameter buffer of a kernel, in bytes.
type Parameter struct{ Offset, Size uint32 }

// Layout are the parameters of a kernel, in their order. An empty Layout is a kernel without parameters.
type Layout []Parameter

const (
	// maxParameterBytes is the largest parameter buffer of CUDA 13.
	maxParameterBytes = 32764
	// maxParameters is the largest accepted number of parameters.
	maxParameters = 4096
)

// isValid reports whether the parameters lie one behind the other within the largest buffer.
func (l Layout) isValid() bool {
	end := uint32(0)
	for _, p := range l {
		if p.Size == 0 || p.Offset < end || p.Offset > maxParameterBytes || p.Size > maxParameterBytes-p.Offset {
			return false
		}
		end = p.Offset + p.Size
	}
	return len(l) <= maxParameters
}

// layouts are the layouts of an image by the mangled name of the kernel. A kernel with two different
// layouts has nil.
type layouts map[string]Layout

// add adds the layout of a kernel.
func (ls layouts) add(name string, l Layout) {
	if old, ok := ls[name]; ok && !slices.Equal(old, l) {
		ls[name] = nil
		return
	}
	ls[name] = l
}

// addAll adds all layouts of another image.
func (ls layouts) addAll(o layouts) {
	for name, l := range o {
		if old, ok := ls[name]; ok && (old == nil || l == nil || !slices.Equal(old, l)) {
			ls[name] = nil
			continue
		}
		ls[name] = l
	}
}

// find returns the layout of a kernel. It returns false if the image does not have the kernel, or
// several layouts of it.
func (ls layouts) find(name string) (Layout, bool) {
	l, ok := ls[name]
	return l, ok && l != nil
}
