//go:build linux

package cpython

import (
	"encoding/binary"
	"errors"
)

// Limits of a Python stack.
const (
	maxFrames         = 2048
	maxTextBytes      = 4 << 10
	maxLineTableBytes = 1 << 16
	maxCodes          = 1 << 16
)

// Frame is one Python frame.
type Frame struct {
	Function string
	File     string
	Line     int // 0: unknown
	// IsEntry says that C code called the frame: it ends a run of the interpreter loop.
	IsEntry bool
}

// Reasons why the Python frames of a thread are incomplete.
var (
	// ErrFrame is the reason if a frame is unreadable, or its code object is none.
	ErrFrame = errors.New("a Python frame is unreadable")
	// ErrTooDeep is the reason if there are more frames than the limit.
	ErrTooDeep = errors.New("too many Python frames")
)

// Frames returns the frames of a thread, innermost first. With an error, they are those before it.
// The thread must not run meanwhile.
func (i *Interpreter) Frames(t Thread) ([]Frame, error) {
	at, err := i.word(t.State + i.layout.frame)
	if err == nil && i.layout.hasCFrame {
		at, err = i.word(at + i.layout.cframeFrame)
	}
	if err != nil {
		return nil, ErrFrame
	}
	var frames []Frame
	for n := 0; at != 0; n++ {
		if n == maxFrames {
			return frames, ErrTooDeep
		}
		var raw [frameBytes]byte
		if i.memory.Read(at, raw[:]) != nil {
			return frames, ErrFrame
		}
		if frames, err = i.appendFrame(frames, raw[:]); err != nil {
			return frames, err
		}
		at = binary.LittleEndian.Uint64(raw[i.layout.previous:])
	}
	return frames, nil
}

// CopiedFrames returns the frames in a copy of their structures, innermost first, frameBytes each.
// complete says that the last one is the first frame of the thread.
func (i *Interpreter) CopiedFrames(copied []byte, complete bool) ([]Frame, error) {
	var frames []Frame
	for len(copied) >= frameBytes {
		var err error
		if frames, err = i.appendFrame(frames, copied[:frameBytes]); err != nil {
			return frames, err
		}
		copied = copied[frameBytes:]
	}
	if !complete {
		return frames, ErrTooDeep
	}
	return frames, nil
}

// appendFrame decodes a frame's structure. A shim frame marks the frame that it called.
func (i *Interpreter) appendFrame(frames []Frame, raw []byte) ([]Frame, error) {
	if i.layout.isEntry == 0 && raw[i.layout.owner] == ownerShim {
		if len(frames) > 0 {
			frames[len(frames)-1].IsEntry = true
		}
		return frames, nil
	}
	object := binary.LittleEndian.Uint64(raw[i.layout.executable:])
	code, err := i.code(object)
	if err != nil {
		return frames, err
	}
	frame := Frame{Function: code.function, File: code.file}
	instruction := binary.LittleEndian.Uint64(raw[i.layout.instruction:])
	frame.Line = findLine(code.lineTable, code.firstLine, int64(instruction-object-i.layout.code)/2)
	frame.IsEntry = i.layout.isEntry != 0 && raw[i.layout.isEntry] != 0
	return append(frames, frame), nil
}

// codeObject has the names of a code object.
type codeObject struct {
	function, file string
	firstLine      int
	lineTable      []byte
}

// Forget forgets code objects: the process may have replaced them.
func (i *Interpreter) Forget() { clear(i.codes) }

// code reads a code object.
func (i *Interpreter) code(object uint64) (codeObject, error) {
	if known, ok := i.codes[object]; ok {
		return known, nil
	}
	kind, err := i.word(object + 8) // ob_type
	if err != nil || kind != i.codeType {
		return codeObject{}, ErrFrame
	}
	var code codeObject
	var errs [4]error
	var raw [4]byte
	code.function, errs[0] = i.text(object + i.layout.qualname)
	code.file, errs[1] = i.text(object + i.layout.filename)
	code.lineTable, errs[2] = i.bytes(object + i.layout.lineTable)
	errs[3] = i.memory.Read(object+i.layout.firstLine, raw[:])
	if errors.Join(errs[:]...) != nil {
		return codeObject{}, ErrFrame
	}
	code.firstLine = int(int32(binary.LittleEndian.Uint32(raw[:])))
	if len(i.codes) < maxCodes {
		i.codes[object] = code
	}
	return code, nil
}

// bytes reads the bytes object to which the word at an address points.
func (i *Interpreter) bytes(pointer uint64) ([]byte, error) {
	object, err := i.word(pointer)
	if err != nil {
		return nil, err
	}
	size, err := i.word(object + 16) // ob_size
	if err != nil || size > maxLineTableBytes {
		return nil, ErrFrame
	}
	data := make([]byte, size)
	return data, i.memory.Read(object+i.layout.bytesData, data)
}
