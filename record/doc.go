// Package record attaches to CUDA processes, drains what the probes send and writes
// a recording. It writes down facts; conclusions are drawn by package analyze.
//
// It needs Linux and the privileges that privilege.Check names, and changes nothing
// in the processes it records: probes are placed by the kernel and go with the
// recorder, however it ends.
//
// Options, Session and Command are the interface for programs, with the errors and constants of
// the folders that they name. Other names in the folders of record may change.
//
// # Goroutines
//
// A Session starts these goroutines. All helpers end when Session.stop is closed; Finish waits for
// them before it empties the pipeline, so that no rows come after the channel of rows is closed.
//
//	goroutine     started by        owns                     sends to
//	supervisor    the caller of     target.Set, and which    rows (may wait)
//	              Start and Run     probes are placed
//	drain         pipeline.run      the ring buffer          chunks, processEvents (may wait)
//	row writer    pipeline.run      Writer, format.Writer    failures and full, one value each
//	overhead      startHelpers      governor, launch probes  rows (may wait), asks of the row writer
//	getters       startHelpers      probes of getters        rows (may wait)
//	returns       startHelpers      probes of returns        rows (may wait)
//	run times     startHelpers      BPF statistics           nothing
//	threads       startHelpers      state of dead threads    orphans of the row writer (may wait)
//	GPUs          watchMachine      NVML: one more per GPU   rows, dropped where it would wait
//	Xids          watchMachine      feeds; NVML's events     rows, dropped where it would wait
//	modules       watchMachine      which files were noted   rows, dropped where it would wait
//	unwinder      unwind.Start      the unwinding tables     target.Set.Mapped, which does not wait
//	command       StartCommand      the traced child         nothing
//
//	channel        closed by                      after
//	stop           Finish                         Run has returned
//	chunks         drain                          Finish asked it to end and the ring buffer is empty
//	rows           rowwriter.Writer.Wait          the helpers, the supervisor's last rows and the drain
//	processEvents  nobody; emptied by Finish      the drain has ended
//
// The supervisor is the goroutine that calls Start, Run, Finish and Close, one after the other. A
// Probes has a lock of its own, held while probes are placed and removed; the row writer never takes it.
package record
