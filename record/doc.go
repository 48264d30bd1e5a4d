// Package record attaches to CUDA processes, receives the events of their CUDA calls and writes a
// recording. It records facts; package analyze draws conclusions.
//
// Package record needs Linux and the privileges that privilege.CheckAttach names. It changes
// nothing in the recorded processes: the kernel attaches the probes, and removes them when the
// recorder exits.
//
// Options, Session and Command are the interface for programs, together with the errors and
// constants of the packages that their documentation names. All other names in the packages below
// record may change.
//
// # Goroutines
//
// A Session starts these goroutines. The helpers are all except supervisor, drain, row writer,
// unwinder, command, kernels and hold tracer. They end when Session.stop is closed. Finish waits for the helpers before
// it empties the pipeline, so that no rows are sent after the channel of rows is closed.
//
//	goroutine     started by        owns                     sends to
//	supervisor    the caller of     target.Set, and which    rows (may block)
//	              Start and Run     libraries are probed
//	drain         pipeline.run      the ring buffer          chunks, processEvents (may block)
//	row writer    pipeline.run      Writer, format.Writer    failures and full, one value each
//	overhead      startHelpers      governor, launch probes  rows (may block), requests of rates
//	getters       startHelpers      probes of getters        rows (may block)
//	returns       startHelpers      return probes            rows (may block)
//	collectives   startHelpers      probes of NCCL           rows (may block)
//	run times     startHelpers      BPF statistics           nothing
//	host          startHostContext  accounts of context      rows of class host (dropped
//	                                switches, one more for   and counted if it would block)
//	                                snapshots and CPU samples
//	progress      startProgress     which processes are      rows (may block)
//	                                watched for GPU times
//	slot finder   progress.Recorder scans of GPU memory: one found slots (may block)
//	                                per process
//	slot poller   progress.Recorder the slots and channels   progress rows (dropped and counted if
//	                                of one process           it would block)
//	thread states startHelpers      a hoststack.Snapshotter  host rows (dropped and counted if it
//	                                                         would block)
//	census        startHelpers      communicators at the     censuses (dropped and counted if it
//	                                start                    would block)
//	host context  startHostContext  context switches and     host rows (dropped and counted if it
//	                                watched threads          would block)
//	snapshots     hostcontext       a hoststack.Snapshotter  nothing: stacks are kept for host context
//	interpreters  startHostContext  the readers below        host rows (dropped and counted)
//	GIL and GC    interpreter       the interpreter of one   nothing
//	                                process
//	host metrics  startHostContext  cgroups, pressure        host rows (dropped and counted)
//	triggers      startHelpers      trigger.Policy, captures requests of the row writer (may block)
//	threads       startHelpers      exited threads' state    open calls (may block)
//	GPUs          startMonitoring   NVML: one more per GPU   rows (dropped if it would block)
//	Xids          watchXids         feeds; NVML's events     rows (dropped if it would block)
//	modules       startMonitoring   files already written    rows (dropped if it would block)
//	unwinder      unwind.Start      the unwind tables        target.Set.NoteMapped (never blocks)
//	command       StartCommand      the traced child         nothing
//	hold tracer   hold.Start        threads it has seized    hold.Holder.Requests (dropped if full)
//	covers        onHold            one held thread each     hold.Holder.Release (may block)
//	kernels       newKernelResolver images of modules        layouts of kernels, into a BPF map
//	link closer   probe.Probes      links of exited targets  nothing
//
//	channel        closed by                      after
//	stop           Finish                         Run has returned
//	chunks         drain                          Finish has emptied the ring buffer
//	rows           rowwriter.Writer.Wait          the last rows of helpers, supervisor and drain
//	processEvents  never; Finish empties it       the drain has ended
//
// The supervisor is the goroutine that calls Start, Run, Finish and Close, in this order. A
// probe.Probes has a lock, which is held while probes are attached and removed. The row writer
// never takes this lock.
package record
