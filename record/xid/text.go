//go:build linux

package xid

import (
	"regexp"
	"strconv"
	"strings"
)

// Lines of the driver in the kernel's log:
//
//	NVRM: Xid (PCI:0000:00:06): 31, pid=462, name=illegal, channel 0x0000000a, …
//	NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:07:00 GPU-I:05): 94, pid=7194, name=train, Contained: …
//	nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
//
// Lines of its tracepoint in tracefs's trace pipe (driver 580), with the driver's text or with
// separate fields:
//
//	irq/44-nvidia-181 [000] ..... 27.210862: nvidia_dev_xid: Xid (PCI:0000:00:06.0): 31, channel 0x0000000a, …
//	irq/44-nvidia-181 [000] ..... 27.210862: nvidia_dev_xid: dev=0000:00:06.0 error_code=31 msg="channel 0x0000000a, …"
var (
	kmsgXidPattern = regexp.MustCompile(
		`^(?:NVRM: Xid|nvidia-nvswitch\d*: (SXid)) \((?:PCI:)?([0-9a-fA-F]+(?::[0-9a-fA-F]+)+(?:\.[0-9a-fA-F])?)([^)]*)\): (\d+)(?:, *(.*))?$`,
	)
	xidFieldPattern = regexp.MustCompile(`^(pid|name)=("[^"]*"|'[^']*'|[^,]*)(?:, *|$)`)
	traceXidPattern = regexp.MustCompile(
		`\s(\d+)\.(\d{6}): nvidia_dev_xid: (?:Xid \(PCI:|dev=)([0-9a-fA-F:.]+)(?:\): | error_code=)(\d+)(?:, ?| msg=)(.*)$`,
	)
)

// maxXidTextBytes bounds the stored text of an Xid in bytes.
const maxXidTextBytes = 1000

// parseKmsgXid parses a line of the kernel's log without its header. ok is false for other lines.
func parseKmsgXid(line string) (s Report, ok bool) {
	match := kmsgXidPattern.FindStringSubmatch(line)
	if match == nil {
		return s, false
	}
	code, err := strconv.ParseInt(match[4], 10, 32)
	if err != nil {
		return s, false
	}
	s = Report{Source: sourceKmsg, sxid: match[1] != "", PCI: match[2], Code: int32(code)}
	rest := match[5]
	for {
		field := xidFieldPattern.FindStringSubmatch(rest)
		if field == nil {
			break
		}
		rest = rest[len(field[0]):]
		value := strings.Trim(field[2], `"'`)
		if value == "<unknown>" {
			continue
		}
		if field[1] == "name" {
			s.process = value
		} else if pid, err := strconv.ParseInt(value, 10, 32); err == nil && pid > 0 {
			s.pid = int32(pid)
		}
	}
	s.text = clipXidText(strings.TrimSpace(strings.TrimSpace(match[3]) + " " + rest))
	return s, true
}

// parseTraceXid parses a line of the trace pipe. monotonicNs is its time on CLOCK_MONOTONIC.
func parseTraceXid(line string) (s Report, monotonicNs int64, ok bool) {
	match := traceXidPattern.FindStringSubmatch(" " + line)
	if match == nil {
		return s, 0, false
	}
	seconds, err := strconv.ParseInt(match[1], 10, 32)
	micros, _ := strconv.ParseInt(match[2], 10, 32) // six digits
	if err != nil {
		return s, 0, false
	}
	code, err := strconv.ParseInt(match[4], 10, 32)
	if err != nil {
		return s, 0, false
	}
	s = Report{
		Source: sourceTracepoint,
		PCI:    match[3],
		Code:   int32(code),
		text:   clipXidText(strings.Trim(match[5], `"`)),
	}
	return s, seconds*1e9 + micros*1e3, true
}

// clipXidText cuts a text to maxXidTextBytes bytes of valid UTF-8.
func clipXidText(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxXidTextBytes)], "")
}

// kmsgRecord is one record of /dev/kmsg.
type kmsgRecord struct {
	localNs int64 // roughly CLOCK_MONOTONIC: the CPU's clock, which NTP does not adjust
	text    string
}

// parseKmsgRecords parses the result of one read of /dev/kmsg: "6,339,5140900,-;NVRM: …", followed
// by lines of details that start with a space.
func parseKmsgRecords(raw string) []kmsgRecord {
	var records []kmsgRecord
	for line := range strings.SplitSeq(raw, "\n") {
		header, text, found := strings.Cut(line, ";")
		fields := strings.Split(header, ",")
		if !found || len(fields) < 3 || strings.HasPrefix(line, " ") {
			continue
		}
		micros, err := strconv.ParseInt(fields[2], 10, 64)
		if err != nil || micros < 0 || micros > 1<<53 { // 285 years
			continue
		}
		records = append(records, kmsgRecord{localNs: micros * 1000, text: text})
	}
	return records
}
