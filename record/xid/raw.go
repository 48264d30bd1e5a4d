//go:build linux

package xid

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/gpurec/gpurec/record/clock"
)

// rawTracepoint follows the driver's Xid tracepoint with a BPF program if tracefs is not mounted.
// The tracepoint's arguments are the PCI device, the code and the text.
type rawTracepoint struct {
	ring   *ebpf.Map
	reader *ringbuf.Reader
	link   link.Link
	clock  clock.Clock
}

// Layout of the record that the BPF program sends for an Xid, in bytes: time and code (8 bytes
// each), then the device name and the text, each with a final NUL byte.
const (
	rawXidDeviceOffset = 16
	rawXidTextOffset   = 48
	rawXidRecordBytes  = 512
)

// openRawTracepoint loads the BPF program and attaches it to the tracepoint.
func openRawTracepoint(c clock.Clock) (_ *rawTracepoint, err error) {
	offset, err := findPCINameOffset()
	if err != nil {
		return nil, fmt.Errorf("trace Xids by BPF: %w", err)
	}
	x := &rawTracepoint{clock: c}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if x.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "xids", Type: ebpf.RingBuf, MaxEntries: 64 << 10}); err != nil {
		return nil, fmt.Errorf("trace Xids by BPF: %w", err)
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "xid", Type: ebpf.RawTracepoint, License: "GPL", Instructions: makeXidProgram(x.ring, offset),
	})
	if err != nil {
		return nil, fmt.Errorf("trace Xids by BPF: %w", err)
	}
	defer func() { _ = program.Close() }() // the link holds a reference
	if x.link, err = link.AttachRawTracepoint(
		link.RawTracepointOptions{Name: "nvidia_dev_xid", Program: program},
	); err != nil {
		return nil, fmt.Errorf("trace Xids by BPF: %w", err)
	}
	x.reader, err = ringbuf.NewReader(x.ring)
	if err != nil {
		return nil, fmt.Errorf("trace Xids by BPF: %w", err)
	}
	x.reader.SetDeadline(time.Unix(1, 0)) // reads never block
	return x, nil
}

// CheckBPFProgram returns nil if the kernel accepts the BPF program and the driver has the
// tracepoint. If only the driver is missing, the error matches os.ErrNotExist.
func CheckBPFProgram() error {
	x, err := openRawTracepoint(clock.New())
	if err == nil {
		x.close()
	}
	return err
}

// findPCINameOffset returns the offset of the device name's pointer, dev.kobj.name, in this
// kernel's struct pci_dev.
func findPCINameOffset() (uint32, error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return 0, err
	}
	var offset uint32
	for _, field := range []struct{ in, name string }{{"pci_dev", "dev"}, {"device", "kobj"}, {"kobject", "name"}} {
		var s *btf.Struct
		if err := spec.TypeByName(field.in, &s); err != nil {
			return 0, err
		}
		found := false
		for _, m := range s.Members {
			if m.Name == field.name {
				offset, found = offset+m.Offset.Bytes(), true
			}
		}
		if !found {
			return 0, fmt.Errorf("struct %s has no %s", field.in, field.name)
		}
	}
	return offset, nil
}

// makeXidProgram returns a BPF program that sends one record per Xid.
func makeXidProgram(ring *ebpf.Map, nameOffset uint32) asm.Instructions {
	readString := func(to, size int32) asm.Instructions { // reads the string at r3
		return asm.Instructions{
			asm.Mov.Reg(
				asm.R1,
				asm.R7,
			),
			asm.Add.Imm(asm.R1, to),
			asm.Mov.Imm(asm.R2, size),
			asm.FnProbeReadKernelStr.Call(),
		}
	}
	p := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMapPtr(
			asm.R1,
			ring.FD(),
		),
		asm.Mov.Imm(asm.R2, rawXidRecordBytes),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnRingbufReserve.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R7, 0, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R6, 8, asm.DWord),
		asm.StoreMem(asm.R7, 8, asm.R1, asm.DWord),
		asm.LoadMem(asm.R3, asm.R6, 16, asm.DWord),
	}
	p = append(p, readString(rawXidTextOffset, rawXidRecordBytes-rawXidTextOffset)...)
	p = append(
		p,
		asm.LoadMem(asm.R3, asm.R6, 0, asm.DWord),
		asm.Add.Imm(asm.R3, int32(nameOffset)),
		asm.Mov.Reg(
			asm.R1,
			asm.R7,
		),
		asm.Add.Imm(asm.R1, rawXidDeviceOffset),
		asm.Mov.Imm(asm.R2, 8),
		asm.FnProbeReadKernel.Call(),
		asm.LoadMem(asm.R3, asm.R7, rawXidDeviceOffset, asm.DWord),
	)
	p = append(p, readString(rawXidDeviceOffset, rawXidTextOffset-rawXidDeviceOffset)...)
	return append(p,
		asm.Mov.Reg(asm.R1, asm.R7), asm.Mov.Imm(asm.R2, 0), asm.FnRingbufSubmit.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	)
}

func (t *rawTracepoint) close() {
	if t.link != nil {
		_ = t.link.Close()
	}
	if t.reader != nil {
		_ = t.reader.Close()
	}
	if t.ring != nil {
		_ = t.ring.Close()
	}
}

// read returns the new Xid reports of the BPF program.
func (t *rawTracepoint) read() (seen []Report, ended bool) {
	for {
		record, err := t.reader.Read()
		if err != nil {
			return seen, errors.Is(err, ringbuf.ErrClosed)
		}
		if s, monotonicNs, ok := decodeRawXid(record.RawSample); ok {
			s.AtNs = t.clock.UnixNs(monotonicNs)
			seen = append(seen, s)
		}
	}
}

// decodeRawXid decodes a record that the BPF program of makeXidProgram has sent for an Xid.
func decodeRawXid(raw []byte) (s Report, monotonicNs uint64, ok bool) {
	if len(raw) < rawXidRecordBytes {
		return s, 0, false
	}
	until := func(b []byte) string {
		b, _, _ = bytes.Cut(b, []byte{0})
		return string(b)
	}
	s = Report{
		Source: sourceTracepoint,
		PCI:    until(raw[rawXidDeviceOffset:rawXidTextOffset]),
		text:   clipXidText(until(raw[rawXidTextOffset:])),
		// The code has 8 bytes; its low 4 bytes come first on little-endian machines.
		Code: int32(binary.NativeEndian.Uint32(raw[8:])),
	}
	return s, binary.NativeEndian.Uint64(raw), true
}
