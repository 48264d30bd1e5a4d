//go:build linux

package progress

import (
	"cmp"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

const (
	// maxSlots limits the slots of a process that are polled.
	maxSlots = 512
	// maxPendingRows limits the rows of slots that are not trusted yet: 2 MiB.
	maxPendingRows = 1 << 16
	// maxRowDelay is the longest time that rows wait for a full batch.
	maxRowDelay = 50 * time.Millisecond
	// idleAfter is the time without a change after which the time between polls is idleFactor times as long.
	idleAfter  = 20 * time.Millisecond
	idleFactor = 4
	// restAfter is the time without a change after which restInterval is the time between polls.
	restAfter    = time.Second
	restInterval = 20 * time.Millisecond
	// minSleep is the shortest time between polls in which the goroutine sleeps, and not its thread. If a thread
	// sleeps, Go's runtime looks every 20 µs for a while whether it has woken: at 1,000 polls a second, this took
	// 10 % of a core.
	minSleep = time.Millisecond
	// sleepLateness is the mean lateness of time.Sleep: the runtime's poller waits for whole milliseconds.
	sleepLateness = 400 * time.Microsecond
	// costSample is the part of polls whose CPU time is measured.
	costSample = 16
)

// trust states whether words that move belong to a channel.
type trust int

const (
	trustNone    trust = iota // the words belong to no channel
	trustPending              // the words may belong to a channel
	trustChannel              // the words belong to a channel
)

// found is a message of the finder about a slot, with the words that the finder has read.
type found struct {
	address uint64
	words   pair
	trust   trust
}

// poller polls the slots of one process. Its goroutine owns all members except the
// atomic ones.
type poller struct {
	pid      int
	rate     Rate
	clock    clock.Clock
	memory   memory
	progress *probe.ProcessProgress // nil: launches read no slots
	lives    *lives
	sink     Sink
	found    <-chan found // closed by the finder at its end

	slots []slot // ordered by address
	spans []span
	at    []int  // offset of each slot in words
	words []byte // content of the spans
	again []byte
	batch []format.ProgressRow
	// flushNs is the time at which the batch is sent, on CLOCK_MONOTONIC.
	flushNs int64
	changed []int // indexes of slots
	// pendingRows is the number of rows of slots without a numbered channel.
	pendingRows int
	channels    int // number of numbered channels
	// changedSpans are the spans of the changed slots.
	changedSpans []span
	// lastChangeNs is the time of the last change of words while the GPU worked, on the recording's clock.
	lastChangeNs int64
	// submitted are the submitted calls at submittedNs, when they had last changed.
	submitted   uint64
	submittedNs int64

	polls int

	cpuNs atomic.Int64 // CPU time of the polls, without wake-ups
	torn  atomic.Int64 // pairs that were discarded
	gone  atomic.Bool  // slots are no longer mapped; the finder resets this to false
}

// run polls until the finder ends or the process exits.
func (p *poller) run() {
	if p.rate.interval() < minSleep {
		runtime.LockOSThread() // the thread ends with the goroutine
		setTimerSlack()
	}
	defer p.finish()
	next := clock.ReadNs(unix.CLOCK_MONOTONIC)
	for p.acceptFound() {
		seenNs := p.clock.NowNs()
		if err := p.pollMeasured(seenNs); err != nil {
			return
		}
		p.flushOldRows()
		next = p.pause(next, seenNs)
	}
}

// pollMeasured is poll. It measures the CPU time of one in costSample polls.
func (p *poller) pollMeasured(seenNs int64) error {
	if p.polls++; p.polls%costSample != 0 {
		return p.poll(seenNs)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
	defer func() { p.cpuNs.Add(costSample * (clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - before)) }()
	return p.poll(seenNs)
}

// setTimerSlack makes sleeps of this thread end in time. By default they end up to 50 µs late.
func setTimerSlack() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// acceptFound adds the slots that the finder has found. It returns false if the finder has ended.
// While there are no slots, it waits for the first one.
func (p *poller) acceptFound() bool {
	for {
		if len(p.slots) == 0 {
			f, ok := <-p.found
			if !ok {
				return false
			}
			p.addSlot(f)
			continue
		}
		select {
		case f, ok := <-p.found:
			if !ok {
				return false
			}
			p.addSlot(f)
		default:
			return true
		}
	}
}

// pause waits until the next poll, and returns the time of that poll on CLOCK_MONOTONIC. A late
// poll delays all later polls. While the GPU is idle, polls are less frequent.
func (p *poller) pause(dueNs, seenNs int64) int64 {
	interval := p.rate.interval().Nanoseconds()
	switch idle := seenNs - p.lastChangeNs; {
	case idle > restAfter.Nanoseconds():
		interval = max(idleFactor*interval, restInterval.Nanoseconds())
	case idle > idleAfter.Nanoseconds():
		interval *= idleFactor
	}
	if interval == 0 {
		return 0
	}
	now := clock.ReadNs(unix.CLOCK_MONOTONIC)
	dueNs = max(dueNs+interval, now)
	if interval >= minSleep.Nanoseconds() {
		time.Sleep(time.Duration(dueNs - now - sleepLateness.Nanoseconds()))
		return dueNs
	}
	until := unix.NsecToTimespec(dueNs)
	_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &until, nil) // a signal ends the sleep early
	return dueNs
}

// addSlot adds, changes or removes the slot of a message.
func (p *poller) addSlot(f found) {
	i, known := slices.BinarySearchFunc(p.slots, f.address, compareAddress)
	switch {
	case f.trust == trustNone:
		if known {
			p.slots = slices.Delete(p.slots, i, i+1)
			p.layOut()
		}
		return
	case !known && len(p.slots) >= maxSlots:
		return
	case !known:
		p.slots = slices.Insert(p.slots, i, slot{address: f.address, inBPF: -1})
		p.layOut()
		p.lastChangeNs = p.clock.NowNs()
		p.own(&p.slots[i], f.words.counter, p.lastChangeNs)
	}
	if f.trust == trustChannel && !p.slots[i].isTrusted {
		p.slots[i].isTrusted = true
		p.numberChannel(&p.slots[i])
	}
}

// numberChannel numbers the channel of a slot if its words are trusted and have stepped. It then
// releases the pending rows of the slot.
func (p *poller) numberChannel(s *slot) {
	if !s.isTrusted || !s.hasStep || s.channel != 0 {
		return
	}
	p.lives.begin(p.pid, s)
	p.channels++
	for _, row := range s.pending {
		row.Channel = s.channel
		p.addRow(row)
	}
	p.pendingRows -= len(s.pending)
	s.pending, s.held.Channel = nil, s.channel
	p.shareSlots()
}

// own gives a slot to a new channel.
func (p *poller) own(s *slot, first, seenNs int64) {
	s.isOwned, s.hasStep, s.words, s.first, s.firstNs = true, false, pair{}, first, seenNs
}

// disown ends the life of a slot's channel. now has words that belong to no channel.
func (p *poller) disown(s *slot, now pair, seenNs int64) {
	p.releaseHeld(s)
	if s.channel != 0 {
		p.lives.add(p.pid, s, max(1, seenNs-s.firstNs))
	}
	p.pendingRows -= len(s.pending)
	s.isOwned, s.channel, s.words, s.pending = false, 0, now, nil
}

func compareAddress(s slot, address uint64) int { return cmp.Compare(s.address, address) }

// layOut computes the spans that contain all slots: one for each page with slots.
func (p *poller) layOut() {
	p.spans, p.at = p.spans[:0], p.at[:0]
	total := 0
	for i := range p.slots {
		address := p.slots[i].address
		last := len(p.spans) - 1
		if last >= 0 && p.spans[last].start&^(pageBytes-1) == address&^(pageBytes-1) {
			grown := int(address-p.spans[last].start) + slotBytes
			total += grown - p.spans[last].bytes
			p.spans[last].bytes = grown
		} else {
			p.spans = append(p.spans, span{address, slotBytes})
			total += slotBytes
		}
		p.at = append(p.at, total-slotBytes)
	}
	p.words, p.again = make([]byte, total), make([]byte, len(p.slots)*slotBytes)
}

// shareSlots passes the first slots with a channel to the BPF programs.
func (p *poller) shareSlots() {
	if p.progress == nil {
		return
	}
	shared := make([]probe.ProgressSlot, 0, probe.MaxProgressSlots)
	for i := range p.slots {
		s := &p.slots[i]
		s.inBPF = -1
		if s.channel > 0 && len(shared) < cap(shared) {
			s.inBPF = len(shared)
			shared = append(
				shared,
				probe.ProgressSlot{Address: s.address, Channel: s.channel, Counter: s.words.counter},
			)
		}
	}
	p.progress.SetSlots(shared)
}

// poll reads all slots once and notes those that have changed. An error is unix.ESRCH.
func (p *poller) poll(seenNs int64) error {
	n, err := p.memory.read(p.words, p.spans)
	if err != nil {
		return err
	}
	if n < len(p.words) {
		p.removeUnreadable(n, seenNs)
		return nil
	}
	p.changed = p.changed[:0]
	for i := range p.slots {
		s := &p.slots[i]
		if pairAt(p.words[p.at[i]:]) != s.words {
			p.changed = append(p.changed, i)
		} else {
			p.releaseHeld(s)
		}
	}
	if len(p.changed) == 0 {
		return nil
	}
	if p.isBusy(seenNs) {
		p.lastChangeNs = seenNs
	}
	return p.confirm()
}

// isBusy reports whether the changed slots show that the GPU works. Words that belong to no channel may change all
// the time; they count for restAfter after a submission.
func (p *poller) isBusy(seenNs int64) bool {
	if p.progress == nil {
		return true
	}
	if calls := p.progress.Submitted(); calls != p.submitted {
		p.submitted, p.submittedNs = calls, seenNs
	}
	return seenNs-p.submittedNs < restAfter.Nanoseconds() ||
		slices.ContainsFunc(p.changed, func(i int) bool { return p.slots[i].channel != 0 })
}

// confirm reads the changed slots again, and notes their words. A pair can be torn, because the GPU
// writes its words one after the other. If two reads are equal, the slot had these words at any
// time between the reads.
func (p *poller) confirm() error {
	p.changedSpans = p.changedSpans[:0]
	for _, i := range p.changed {
		p.changedSpans = append(p.changedSpans, span{p.slots[i].address, slotBytes})
	}
	again := p.again[:len(p.changed)*slotBytes]
	seenNs := p.clock.NowNs()
	if n, err := p.memory.read(again, p.changedSpans); err != nil || n < len(again) {
		return err
	}
	for k, i := range p.changed {
		now, atNs, ok := pairAt(p.words[p.at[i]:]), seenNs, true
		if now != pairAt(again[k*slotBytes:]) {
			now, atNs, ok = p.readAgain(i)
		}
		if !ok {
			p.torn.Add(1)
			continue
		}
		p.noteWords(&p.slots[i], now, atNs)
	}
	return nil
}

// readAgain reads a slot until two reads are equal. atNs is a time between these two reads.
func (p *poller) readAgain(i int) (now pair, atNs int64, ok bool) {
	const tries = 4
	var words [slotBytes]byte
	one := [1]span{{p.slots[i].address, slotBytes}}
	last := pair{-1, -1}
	for range tries {
		atNs = p.clock.NowNs()
		if n, err := p.memory.read(words[:], one[:]); err != nil || n < slotBytes {
			return pair{}, 0, false
		}
		if now = pairAt(words[:]); now == last {
			return now, atNs, true
		}
		last = now
	}
	return pair{}, 0, false
}

// noteWords holds the changed words of a slot. If the channel of the slot cannot have these words,
// its life ends.
func (p *poller) noteWords(s *slot, now pair, seenNs int64) {
	switch {
	case s.isOwned && s.words == (pair{}) && now.counter > 0:
	case s.isOwned && isStep(s.words, now):
		p.releaseHeld(s)
		s.hasStep = true
		p.numberChannel(s)
	case s.isOwned && isTorn(s.words, now): // the words before were torn
		if s.hasStep {
			p.torn.Add(1)
		}
		s.isHeld = false
	default:
		p.renew(s, now, seenNs)
		if !s.isOwned {
			return
		}
	}
	s.words = now
	s.held = format.ProgressRow{
		SeenNs: seenNs, GPUTimeNs: now.gpuNs, Counter: now.counter, Pid: int32(p.pid), Channel: s.channel,
	}
	s.isHeld = s.inBPF < 0 || p.progress.NoteCounter(s.inBPF, now.counter)
}

// renew ends the life of a slot's channel. If a new channel can have the words, the life of that
// channel begins.
func (p *poller) renew(s *slot, now pair, seenNs int64) {
	before := s.channel
	p.disown(s, now, seenNs)
	if now.counter > 0 && now.counter < maxStep && isTimeNear(now.gpuNs, seenNs) {
		p.own(s, now.counter, seenNs)
	}
	if s.channel != before {
		p.shareSlots()
	}
}

// releaseHeld records the held row of a slot.
func (p *poller) releaseHeld(s *slot) {
	if !s.isHeld {
		return
	}
	s.isHeld = false
	if s.channel != 0 {
		p.addRow(s.held)
		return
	}
	if p.pendingRows >= maxPendingRows {
		half := len(s.pending) / 2
		p.pendingRows -= half
		s.pending = slices.Delete(s.pending, 0, half)
	}
	if p.pendingRows < maxPendingRows {
		s.pending = append(s.pending, s.held)
		p.pendingRows++
	}
}

// removeUnreadable removes the slots of the first span that the n read bytes do not contain. The
// page of this span is gone.
func (p *poller) removeUnreadable(n int, seenNs int64) {
	for _, gone := range p.spans {
		if n -= gone.bytes; n >= 0 {
			continue
		}
		end := gone.start + uint64(gone.bytes)
		p.slots = slices.DeleteFunc(p.slots, func(s slot) bool {
			if s.address < gone.start || s.address >= end {
				return false
			}
			p.disown(&s, pair{}, seenNs)
			return true
		})
		break
	}
	p.layOut()
	p.shareSlots()
	p.gone.Store(true)
}

// repeatWords adds the words of channels that the last poll has read, and that had not changed. These
// rows show when the words were read for the last time.
func (p *poller) repeatWords(seenNs int64) {
	for i := range p.slots {
		s := &p.slots[i]
		if s.channel != 0 && s.words != (pair{}) && !s.isHeld && pairAt(p.words[p.at[i]:]) == s.words {
			p.addRow(format.ProgressRow{
				SeenNs:    seenNs,
				GPUTimeNs: s.words.gpuNs,
				Counter:   s.words.counter,
				Pid:       int32(p.pid),
				Channel:   s.channel,
			})
		}
	}
}

func (p *poller) addRow(row format.ProgressRow) {
	if p.batch == nil {
		p.batch = p.sink.ProgressBatch()
		p.flushNs = clock.ReadNs(unix.CLOCK_MONOTONIC) + maxRowDelay.Nanoseconds()
	}
	p.batch = append(p.batch, row)
	if len(p.batch) == cap(p.batch) {
		p.flush()
	}
}

func (p *poller) flushOldRows() {
	if p.batch != nil && clock.ReadNs(unix.CLOCK_MONOTONIC) >= p.flushNs {
		p.flush()
	}
}

func (p *poller) flush() {
	if p.batch != nil {
		p.sink.SendProgress(p.batch)
		p.batch = nil
	}
}

// finish reads all slots once more, and sends the last rows. If the process has exited, it ends the
// channels.
func (p *poller) finish() {
	seenNs := p.clock.NowNs()
	if err := p.poll(seenNs); errors.Is(err, unix.ESRCH) {
		for i := range p.slots {
			p.disown(&p.slots[i], pair{}, p.clock.NowNs())
		}
	} else if err == nil {
		p.repeatWords(seenNs)
	}
	for i := range p.slots {
		p.releaseHeld(&p.slots[i])
	}
	p.flush()
	go func() {
		for range p.found { // the finder must not wait for a poller that has ended
		}
	}()
}
