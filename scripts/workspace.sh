#!/bin/sh
# Writes build/go.work, in which gpurec is built with a copy of the unwinder's module that
# differs from the original in a few lines. The copy comes from the module cache; each
# change must find its place, so a new version cannot silently go without.
#
# - RLIMIT_MEMLOCK stays as it is. Raising it needs CAP_SYS_RESOURCE, and since Linux 5.11
#   BPF memory is not charged to it.
# - A location without a line does not change the running line of a Python line table.
# - The Python thread state is found by its key also since 3.13: the thread-local variable
#   is empty while the thread has released the interpreter's lock, as PyTorch does.
# - CPython 3.14 marks entry frames with a tagged None.
# - Unwind information of a new process's libraries is read by some workers at once: one
#   after the other PyTorch's take 4 to 6 seconds.
# - Processes that have ended are forgotten a second or two later, also if no stack comes
#   through the module's own ring buffer: ours do not. Else it would keep all of them, and
#   not unwind a process that gets the number of one.
# - What a process has mapped is read as if it were made to do harm: what makes reading panic
#   (code for another processor), or is cut off meanwhile (reading is through mmap: a bus error),
#   is left out and does not end the recorder, and names over 4 KiB are not copied for each
#   of 60,000 sections.
# - The module's own copies of the unwinding programs are not loaded: gpurec loads one of
#   its own, and the verifier takes two seconds for them.
#
# Without the workspace gpurec builds as well; it then needs the capability, attaches two
# seconds later, and Python frames have wrong lines or are missing.
set -eu

cd "$(dirname "$0")/.."
module=go.opentelemetry.io/ebpf-profiler
version=$(GOWORK=off go list -m -f '{{.Version}}' "$module")
edition=7 # of the changes
copy=build/workspace/ebpf-profiler

# change FILE FROM TO: replaces the line FROM, which must be there once.
change() {
	[ "$(grep -cxF "$2" "$copy/$1")" = 1 ] || { echo "workspace.sh: $1 has changed: no single line '$2'" >&2; exit 1; }
	awk -v from="$2" -v to="$3" '$0 == from { if (to != "") print to; next } { print }' "$copy/$1" >"$copy/$1.new"
	mv "$copy/$1.new" "$copy/$1"
}

if [ "$(cat build/workspace/version 2>/dev/null)" != "$version $edition" ]; then
	cache=$(GOWORK=off go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
	rm -rf build/workspace
	mkdir -p build/workspace
	cp -R "$cache" "$copy"
	chmod -R u+w "$copy"
	cat >"$copy/rlimit/rlimit.go" <<-'GO'
		// Package rlimit leaves the limits as they are.
		package rlimit

		// MaximizeMemlock does nothing: Linux does not charge BPF memory to RLIMIT_MEMLOCK since 5.11.
		func MaximizeMemlock() (func(), error) { return func() {}, nil }
	GO
	python=interpreter/python/python.go
	change $python '			line = -1' ''
	change $python '	if d.staticTLSOffset == 0 && !libcInfo.HasTSDInfo() {' '	if !libcInfo.HasTSDInfo() {'
	change $python '		Tls_offset:     int16(d.staticTLSOffset),' '		Tls_offset:     0,'
	change $python '		cdata.NoneStructAddr = uint64(d.noneStruct) + uint64(p.bias)' \
		'		cdata.NoneStructAddr = uint64(d.noneStruct) + uint64(p.bias)
		if d.version >= pythonVer(3, 14) {
			cdata.NoneStructAddr |= 1
		}'
	change tracer/tracer.go '	if err = loadPerfUnwinders(coll, ebpfProgs, ebpfMaps["perf_progs"], tailCallProgs,' \
		'	tailCallProgs = nil
	if err = loadPerfUnwinders(coll, ebpfProgs, ebpfMaps["perf_progs"], tailCallProgs,'
	change processmanager/processinfo.go '	pm.mappingStats.numProcAttempts.Add(1)' \
		'	pm.mappingStats.numProcAttempts.Add(1)
	if newProcess {
		defer pm.prefetch(pr)()
	}'
	cat >"$copy/processmanager/prefetch.go" <<-'GO'
		package processmanager

		import (
			"slices"
			"strings"
			"sync"

			"go.opentelemetry.io/ebpf-profiler/host"
			"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
			"go.opentelemetry.io/ebpf-profiler/process"
			"go.opentelemetry.io/ebpf-profiler/safely"
			"go.opentelemetry.io/ebpf-profiler/util"
		)

		// prefetchers bounds the memory that reading takes.
		const prefetchers = 3

		// prefetch reads the unwind information of all files that a process has mapped,
		// the largest first. The function that it returns gives up the references to them.
		func (pm *ProcessManager) prefetch(pr process.Process) (release func()) {
			seen := make(map[util.OnDiskFileIdentifier]bool)
			var files []process.RawMapping
			_, _ = pr.IterateMappings(func(m process.RawMapping) bool {
				if key := m.GetOnDiskFileIdentifier(); m.IsExecutable() && !m.IsAnonymous() && !seen[key] {
					seen[key] = true
					m.Path = strings.Clone(m.Path)
					files = append(files, m)
				}
				return true
			})
			slices.SortFunc(files, func(a, b process.RawMapping) int { return int(b.Length>>12) - int(a.Length>>12) })
			var (
				wg   sync.WaitGroup
				mu   sync.Mutex
				held []host.FileID
			)
			next := make(chan *process.RawMapping)
			for range prefetchers {
				wg.Go(func() {
					own := process.New(pr.PID(), pr.PID())
					defer own.Close()
					for m := range next {
						var id host.FileID
						err := safely.Do(func() (err error) { id, err = pm.prefetchFile(own, m); return err })
						if err == nil {
							mu.Lock()
							held = append(held, id)
							mu.Unlock()
						}
					}
				})
			}
			for i := range files {
				next <- &files[i]
			}
			close(next)
			wg.Wait()
			return func() {
				for _, id := range held {
					_ = pm.eim.DecRef(id)
				}
			}
		}

		func (pm *ProcessManager) prefetchFile(pr process.Process, m *process.RawMapping) (host.FileID, error) {
			ref := pfelf.NewReferenceWithOpenFunc(m.Path, pr, func() (*pfelf.File, error) { return process.OpenELFMapping(pr, m) })
			defer ref.Close()
			if _, err := ref.GetELF(); err != nil {
				return 0, err
			}
			file, err := pr.CalculateMappingFileID(m)
			if err != nil {
				return 0, err
			}
			id := host.FileIDFromLibpf(file)
			_, err = pm.eim.AddOrIncRef(id, ref)
			return id, err
		}
	GO
	mkdir "$copy/safely"
	cat >"$copy/safely/safely.go" <<-'GO'
		// Package safely runs what reads files of processes that may mean harm.
		package safely

		import (
			"fmt"
			"runtime/debug"
		)

		// Do runs do and returns its error, or one that says why it panicked: memory that
		// cannot be read, since the file behind it was cut off, is a panic too.
		func Do(do func() error) (err error) {
			defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("panic: %v", r)
				}
			}()
			return do()
		}
	GO
	change nativeunwind/elfunwindinfo/stackdeltaprovider.go '	interval, err := ExtractELF(elfRef)' \
		'	var interval *sdtypes.IntervalData
	err := safely.Do(func() (err error) { interval, err = ExtractELF(elfRef); return err })'
	change nativeunwind/elfunwindinfo/stackdeltaprovider.go '	"go.opentelemetry.io/ebpf-profiler/nativeunwind"' \
		'	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/safely"'
	change libpf/pfelf/file.go '	slen := bytes.IndexByte(section[start:], 0)' '	slen := bytes.IndexByte(section[start:min(start+4096, len(section))], 0)'
	change tracer/events.go '			t.processManager.SynchronizeProcess(process.New(pidTid.PID(), pidTid.TID()))' \
		'			err := safely.Do(func() error {
				t.processManager.SynchronizeProcess(process.New(pidTid.PID(), pidTid.TID()))
				return nil
			})
			if err != nil {
				log.Errorf("process %d is not unwound: %v", pidTid.PID(), err)
			}'
	change tracer/events.go '	"go.opentelemetry.io/ebpf-profiler/process"' \
		'	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/safely"'
	change tracer/events.go '			oldKTime = minKTime' \
		'			if oldKTime = minKTime; oldKTime == 0 {
				oldKTime = int64(times.GetKTime())
			}'
	echo "$version $edition" >build/workspace/version
fi

cat >build/go.work.new <<-GO
	go $(sed -n 's/^go //p' go.mod)

	use ..

	replace $module => ./workspace/ebpf-profiler
GO
# An unchanged file keeps its time: Go's caches stay good.
if cmp -s build/go.work.new build/go.work 2>/dev/null; then rm build/go.work.new; else mv build/go.work.new build/go.work; fi
