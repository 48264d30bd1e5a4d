//go:build linux

package kernelargs

import (
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
)

// ImageKind is the way in which a process loads an image.
type ImageKind uint8

// Kinds of images.
const (
	ImageInMemory ImageKind = iota // at an address of the process
	ImageInFile                    // in the file whose path is at an address of the process
)

// Limits of the state of a Resolver.
const (
	maxWaiting   = 4096    // images that wait to be read
	maxProcesses = 4096    // processes
	maxFunctions = 1 << 18 // functions of all processes
)

// Resolver knows the parameters of the kernels of processes. Run reads images; its other methods are safe
// for concurrent use, and do not read the memory of processes.
type Resolver struct {
	// onLayout gets each layout that becomes known for a function.
	onLayout func(pid int32, function int64, l Layout)
	waiting  chan image
	done     chan struct{} // closed when Run returns

	mu        sync.Mutex
	idle      *sync.Cond // signalled when unread becomes 0
	unread    int        // images that wait or are being read
	functions int
	processes map[int32]*processKernels
}

// image is an image to read. module 0: all files that the process has mapped.
type image struct {
	pid     int32
	module  int64
	address uint64
	kind    ImageKind
}

// processKernels are the kernels of one process.
type processKernels struct {
	// modules has the layouts of the modules that were read, nil for the others.
	modules map[int64]layouts
	// everywhere has the layouts of all images. A kernel that has different ones has none.
	everywhere layouts
	functions  map[int64]*function
	files      map[mappedFile]bool // only Run uses it
	scanned    time.Time           // when the mapped files were last read
}

// function is a kernel handle.
type function struct {
	module int64
	name   string
	// asked are the parameters that the process asked the driver for; isComplete that there are no more.
	asked      Layout
	isComplete bool
}

// NewResolver returns a Resolver. Its caller starts Run. onLayout may be nil.
func NewResolver(onLayout func(pid int32, function int64, l Layout)) *Resolver {
	r := &Resolver{
		onLayout: onLayout, waiting: make(chan image, maxWaiting), done: make(chan struct{}),
		processes: make(map[int32]*processKernels),
	}
	r.idle = sync.NewCond(&r.mu)
	return r
}

// Run reads images until stop is closed.
func (r *Resolver) Run(stop <-chan struct{}) {
	defer close(r.done)
	for {
		select {
		case i := <-r.waiting:
			r.read(i)
		case <-stop:
			return
		}
	}
}

// Wait waits until Run has returned.
func (r *Resolver) Wait() { <-r.done }

// processOf returns the state of a process. r.mu must be held. It returns nil if there are too many.
func (r *Resolver) processOf(pid int32) *processKernels {
	p := r.processes[pid]
	if p == nil && len(r.processes) < maxProcesses {
		p = &processKernels{
			modules: make(map[int64]layouts), everywhere: make(layouts), functions: make(map[int64]*function),
			files: make(map[mappedFile]bool),
		}
		r.processes[pid] = p
	}
	return p
}

// enqueue has Run read an image. r.mu must be held.
func (r *Resolver) enqueue(i image) {
	select {
	case r.waiting <- i:
		r.unread++
	default: // its kernels have no layout
	}
}

// AddModule notes that a process has loaded a module or library from an image.
func (r *Resolver) AddModule(pid int32, module int64, kind ImageKind, address uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.processOf(pid)
	if p == nil {
		return
	}
	delete(p.modules, module) // an address can be used again
	for _, f := range p.functions {
		if f.module == module {
			f.module = 0
		}
	}
	r.enqueue(image{pid, module, address, kind})
}

// mappedFilesInterval is the shortest time between two readings of the mapped files of a process.
const mappedFilesInterval = 5 * time.Second

// AddProcess has the files read that a process has mapped, unless that was just done.
func (r *Resolver) AddProcess(pid int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.processOf(pid)
	if p == nil || time.Since(p.scanned) < mappedFilesInterval {
		return
	}
	p.scanned = time.Now()
	r.enqueue(image{pid: pid})
}

// functionOf returns the state of a function. r.mu must be held. It returns nil if there are too many.
func (r *Resolver) functionOf(pid int32, handle int64) (*processKernels, *function) {
	p := r.processOf(pid)
	if p == nil {
		return nil, nil
	}
	f := p.functions[handle]
	if f == nil {
		if r.functions >= maxFunctions {
			return p, nil
		}
		f = new(function)
		p.functions[handle] = f
		r.functions++
	}
	return p, f
}

// AddFunction notes the module and the mangled name of a function. A handle that is used again gets a new
// layout.
func (r *Resolver) AddFunction(pid int32, handle, module int64, name string) {
	r.mu.Lock()
	p, f := r.functionOf(pid, handle)
	if f == nil {
		r.mu.Unlock()
		return
	}
	if f.name != name || f.module != module {
		*f = function{module: module, name: name}
	}
	l, source := p.find(f)
	r.mu.Unlock()
	r.announce(pid, handle, l, source)
}

// CopyFunction notes that a function is that of a kernel: cuKernelGetFunction.
func (r *Resolver) CopyFunction(pid int32, handle, kernel int64) {
	r.mu.Lock()
	p := r.processes[pid]
	var of *function
	if p != nil {
		of = p.functions[kernel]
	}
	if of == nil {
		r.mu.Unlock()
		return
	}
	module, name := of.module, of.name
	r.mu.Unlock()
	r.AddFunction(pid, handle, module, name)
}

// AddParameter notes a call of cuFuncGetParamInfo or cuKernelGetParamInfo. failed is true if the driver has
// no parameter with this index.
func (r *Resolver) AddParameter(pid int32, handle, index int64, at Parameter, failed bool) {
	r.mu.Lock()
	p, f := r.functionOf(pid, handle)
	if f == nil {
		r.mu.Unlock()
		return
	}
	switch {
	case failed && index == int64(len(f.asked)):
		f.isComplete = true
	case !failed && index == int64(len(f.asked)) && index < maxParameters:
		f.asked = append(f.asked, at)
	}
	l, source := p.find(f)
	r.mu.Unlock()
	r.announce(pid, handle, l, source)
}

// announce passes a layout that is known to onLayout.
func (r *Resolver) announce(pid int32, handle int64, l Layout, source string) {
	if source != format.ArgumentsUnknown && r.onLayout != nil {
		r.onLayout(pid, handle, l)
	}
}

// find returns the layout of a function, and its source.
func (p *processKernels) find(f *function) (Layout, string) {
	if f.isComplete && f.asked.isValid() {
		return f.asked, format.ArgumentsFromCalls
	}
	if kernels := p.modules[f.module]; kernels != nil {
		if l, ok := kernels.find(f.name); ok {
			return l, format.ArgumentsFromModule
		}
		return nil, format.ArgumentsUnknown
	}
	if l, ok := p.everywhere.find(f.name); ok {
		return l, format.ArgumentsFromModule
	}
	return nil, format.ArgumentsUnknown
}

// Layout returns the parameters of a function, and how they became known: one of format.ArgumentsFromCalls,
// ArgumentsFromModule and ArgumentsUnknown. name is its mangled name, or "".
func (r *Resolver) Layout(pid int32, handle int64, name string) (Layout, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.processes[pid]
	if p == nil {
		return nil, format.ArgumentsUnknown
	}
	f := p.functions[handle]
	switch {
	case f == nil:
		f = &function{name: name}
	case f.name == "":
		named := *f
		named.name = name
		f = &named
	}
	return p.find(f)
}

// RemoveModule notes that a module or library is unloaded. The driver may use its handles again.
func (r *Resolver) RemoveModule(pid int32, module int64) (functions []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.processes[pid]
	if p == nil {
		return nil
	}
	delete(p.modules, module)
	for handle, f := range p.functions {
		if f.module == module {
			functions = append(functions, handle)
			delete(p.functions, handle)
			r.functions--
		}
	}
	return functions
}

// ForgetProcesses forgets processes that have ended.
func (r *Resolver) ForgetProcesses(gone map[int32]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range gone {
		if p := r.processes[pid]; p != nil {
			r.functions -= len(p.functions)
			delete(r.processes, pid)
		}
	}
}

// Settle waits until all images are read, or for the given time. The functions of images that are not read
// have no layout.
func (r *Resolver) Settle(limit time.Duration) {
	timer := time.AfterFunc(limit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.idle.Broadcast()
	})
	defer timer.Stop()
	end := time.Now().Add(limit)
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.unread > 0 && time.Now().Before(end) {
		select {
		case <-r.done:
			return
		default:
		}
		r.idle.Wait()
	}
}

// read reads an image, and announces the functions whose layouts become known.
func (r *Resolver) read(i image) {
	var found layouts
	var err error
	switch {
	case i.module == 0:
		r.mu.Lock()
		p := r.processes[i.pid]
		r.mu.Unlock()
		if p != nil {
			found, _, err = readMappedFiles(int(i.pid), p.files)
		}
	case i.kind == ImageInFile:
		found, err = readImageFile(int(i.pid), i.address)
	default:
		found, err = readImage(int(i.pid), i.address)
	}
	r.mu.Lock()
	known := make(map[int64]Layout)
	if p := r.processes[i.pid]; p != nil && err == nil {
		p.everywhere.addAll(found)
		if i.module != 0 {
			p.modules[i.module] = found
		}
		for handle, f := range p.functions {
			if l, source := p.find(f); source != format.ArgumentsUnknown && (i.module == 0 || f.module == i.module) {
				known[handle] = l
			}
		}
	}
	if r.unread--; r.unread == 0 {
		r.idle.Broadcast()
	}
	r.mu.Unlock()
	for handle, l := range known {
		r.announce(i.pid, handle, l, format.ArgumentsFromModule)
	}
}
