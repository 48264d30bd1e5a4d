package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// What Xids and SXids mean, in our own words. Codes, names, causes and what to do follow NVIDIA's
// "XID Errors" (the table of causes and the Xid catalogue, edition of driver 580) and, for SXids,
// the tables of the "Fabric Manager User Guide".

// XidCause is a set of parties that an Xid may be the fault of.
type XidCause uint8

const (
	ByApplication XidCause = 1 << iota
	ByDriver               // or firmware
	ByHardware             // of the GPU or the NVSwitch
	BySystem               // the host around it: PCIe, power, cooling, memory
	ByAnother              // a consequence of another Xid, or of somebody's action
)

var causeNames = []string{"application", "driver", "hardware", "host", "another error or action"}

// Names lists the parties, the likeliest ones as the catalogue has them in no order.
func (c XidCause) Names() []string {
	var list []string
	for i, name := range causeNames {
		if c&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// XidEntry is what is known of a code.
type XidEntry struct {
	Name, Meaning string
	Causes        XidCause
	Action        string
}

// What to do, where it is the same for several codes.
const (
	actDebugKernel = "look at the launches below; run the program under compute-sanitizer, or with " +
		"CUDA_DEVICE_WAITS_ON_EXCEPTION=1 and cuda-gdb; " +
		"suspect driver and hardware only if both find nothing and other programs fail too"
	actRestart = "restart the program; if it comes back with other programs too, report it to NVIDIA"
	actReset   = "end all programs on the GPU and reset it (nvidia-smi -r), or reboot; if it comes back, have " +
		"the hardware checked"
	actResetReport = "reset the GPU (nvidia-smi -r), or reboot; if it comes back, update the driver and report it " +
		"with nvidia-bug-report.sh"
	actNothing = "nothing now; watch whether it comes back"
	actNVLink5 = "look at the Xid 154 that comes with it: it says what is needed; the text has the unit, link " +
		"and error bits for NVIDIA's decoding table"
)

var xidCatalogue = map[int64]XidEntry{
	8: {
		"GPU stopped processing",
		"a channel made no progress for too long",
		ByApplication | ByDriver | ByHardware,
		actRestart,
	},
	11: {
		"invalid push buffer",
		"commands for the GPU were not valid",
		ByApplication | ByDriver | ByHardware | BySystem,
		actRestart,
	},
	13: {
		"graphics engine exception", "a kernel did something illegal: mostly an access beyond an array, also an " +
			"illegal instruction or register",
		ByApplication | ByDriver | ByHardware, actDebugKernel,
	},
	14: {"injected error", "somebody injected an error to test with", ByAnother, actNothing},
	25: {
		"illegal push buffer",
		"commands for the GPU were not valid",
		ByApplication | ByDriver | ByHardware | BySystem,
		actRestart,
	},
	31: {
		"GPU memory page fault", "a kernel or copy used an address that is not mapped: freed memory, a bad " +
			"pointer, an index out of bounds",
		ByApplication | ByDriver | ByHardware, actDebugKernel,
	},
	32: {
		"invalid push buffer stream", "the unit that fetches commands over PCIe got broken ones; mostly the " +
			"quality of the PCIe link, hardly ever the program",
		ByDriver | ByHardware | BySystem, "restart the program; look for PCIe errors in the kernel log and at the " +
			"replay counter, check seating, riser and cable",
	},
	37: {"driver firmware error", "the graphics firmware got a command it does not know", ByDriver, actNothing},
	38: {"driver firmware error", "the graphics firmware hung until its watchdog", ByDriver, "nothing if it stays " +
		"alone; if it comes back, update the driver and report it"},
	42: {"video engine error", "the video image compositor reported an error", ByDriver | ByHardware, actRestart},
	43: {
		"GPU stopped processing", "the program hit a fault of its own and was stopped on the GPU; the GPU itself " +
			"is healthy", ByApplication | ByDriver,
		"fix the program: its first CUDA error and the launches before it are below",
	},
	44: {
		"fault during context switch",
		"the graphics engine faulted while it changed programs",
		ByDriver | ByHardware,
		actNothing,
	},
	45: {
		"preemptive cleanup", "the driver removed a program's work from the GPU because it ended or because of an " +
			"earlier error: Ctrl-C, kill and resets do it too",
		ByAnother | ByApplication, "look for an Xid just before it and follow that; alone it says only that a " +
			"program was ended",
	},
	46: {"GPU stopped processing", "the GPU did not answer in time", ByDriver | ByHardware, actReset},
	48: {
		"double-bit ECC error", "memory of the GPU had an error that ECC could not correct; the program that used " +
			"it was told", ByHardware,
		"end all programs and reset the GPU, or reboot; then see analyze gpu for pending row remappings, and if it " +
			"counts for SRAM and its threshold is exceeded run NVIDIA's field diagnostics",
	},
	54: {
		"no auxiliary power",
		"the power connector of the board is not plugged in",
		BySystem,
		"plug in the auxiliary power of the board",
	},
	56: {"display engine error", "the display engine reported an error", ByDriver | ByHardware, actRestart},
	58: {"GPU memory stability error", "memory of the GPU did not work reliably", ByHardware | BySystem, actReset},
	60: {
		"video processor exception",
		"the security or video processor reported an error",
		ByApplication | ByDriver | ByHardware,
		actRestart,
	},
	61: {"internal microcontroller breakpoint", "the power management controller of the GPU stopped at a breakpoint " +
		"(of older drivers)", ByDriver | ByHardware | BySystem, actResetReport},
	62: {"internal microcontroller halt", "the power management controller of the GPU stopped " +
		"working", ByDriver | ByHardware | BySystem, actReset},
	63: {
		"memory row remapped or page retired", "the GPU noted a bad piece of its memory and will no longer use it; " +
			"that succeeded", ByHardware,
		"nothing at once; reset the GPU when it is free, so that the remapping takes effect (see analyze gpu)",
	},
	64: {
		"row remapping or page retirement failed",
		"the GPU could not take a bad piece of its memory out of use",
		ByHardware | ByDriver,
		"drain the GPU and reset it; if remapping fails again, have it replaced",
	},
	66: {"illegal access by driver", "the driver accessed a register that it may not", ByDriver, "nothing if it " +
		"stays alone; if it comes back, report it"},
	67: {"illegal access by driver", "the driver accessed a register that it may not", ByDriver, "nothing if it " +
		"stays alone; if it comes back, report it"},
	69: {
		"graphics engine class error", "the program's commands for the graphics engine were not " +
			"allowed", ByApplication | ByDriver | ByHardware,
		"restart the program; check that its CUDA libraries fit the driver; report it if it comes back",
	},
	74: {
		"NVLink error", "a link to another GPU or an NVSwitch failed; the other end may be what failed, and all " +
			"its neighbours then report this", ByHardware | BySystem | ByAnother,
		"reset the GPUs of the link, or reboot; look at nvidia-smi nvlink -e and at Xids of the GPU on the other " +
			"end; if it comes back, have link and board checked",
	},
	78: {"vGPU start error", "a virtual GPU could not be started", ByDriver, "bring the versions of host driver, " +
		"guest driver and firmware in line"},
	79: {
		"GPU has fallen off the bus", "the GPU did not answer on PCIe any more: the link went down, or power or " +
			"temperature made it stop", ByHardware | BySystem | ByDriver,
		"reboot, with a power cycle if needed; look for PCIe errors in the kernel and board logs, check seating, " +
			"power and cooling; if it comes back, have the GPU replaced",
	},
	80: {
		"corrupted data sent to the GPU",
		"commands arrived with a wrong check sum",
		ByDriver | ByHardware | BySystem,
		actRestart,
	},
	81: {"VGA subsystem error", "the VGA part of the GPU failed", ByHardware, actReset},
	86: {
		"optical flow engine exception",
		"the optical flow engine reported an error",
		ByApplication | ByDriver | ByHardware,
		actRestart,
	},
	92: {
		"high rate of single-bit ECC errors",
		"many errors of memory that ECC corrected: nothing was lost yet",
		ByHardware | ByDriver,
		"nothing now; watch for Xid 48, 63 and 64, and have the GPU checked if it goes on",
	},
	93: {
		"InfoROM wear limit",
		"the GPU's own log memory has reached a write limit that was set",
		ByAnother | ByHardware,
		actNothing,
	},
	94: {
		"contained memory error", "an uncorrectable memory error that hit one program only; the others are not " +
			"affected", ByHardware,
		"restart the program that has Xid 45 or CUDA error 226 with it; reset the GPU when it is free",
	},
	95: {
		"uncontained memory error",
		"an uncorrectable memory error that may have hit all programs on the GPU",
		ByHardware,
		"end all programs and reset the GPU before anything is started again; if it comes back, have it replaced",
	},
	108: {
		"NVLink address translation error",
		"an access by NVLink could not be translated at the other GPU",
		ByApplication | ByDriver | ByHardware,
		actDebugKernel,
	},
	109: {
		"context switch timeout", "the GPU could not change from one program to another in time: a kernel that " +
			"cannot be interrupted, or a hang", ByApplication | ByDriver | ByHardware | BySystem,
		"reset the GPU (nvidia-smi -r); look at the launches below for one that never ends; if it comes back with " +
			"other programs, report it",
	},
	110: {
		"security fault", "a security check of the GPU failed; rare without broken hardware", ByHardware | ByDriver,
		"undo recent changes of the hardware and power the machine off and on; if it comes back, have the GPU checked",
	},
	119: {
		"GSP timeout", "the GPU's system processor (GSP) did not answer the driver in time", ByDriver | ByHardware,
		"reset the GPU, or power cycle the machine; if it comes back, update driver and firmware and report it",
	},
	120: {
		"GSP error", "the firmware on the GPU's system processor (GSP) failed", ByDriver | ByHardware,
		"reset the GPU, or power cycle the machine; if it comes back, update driver and firmware and report it",
	},
	121: {"C2C link error", "errors on the link to the Grace CPU, corrected", ByHardware, "nothing now; reset the " +
		"GPU when it is free, so that the link is trained anew"},
	122: {"SPI read failure", "the driver could not read the board's flash memory", ByDriver | ByHardware, actReset},
	123: {"SPI write failure", "the driver could not write the board's flash memory", ByDriver | ByHardware, actReset},
	124: {"SPI erase failure", "the driver could not erase the board's flash memory", ByDriver | ByHardware, actReset},
	125: {"InfoROM failure", "the GPU's own log memory has a damaged file system", ByDriver | ByHardware, actReset},
	136: {"NVLink training failed", "a link could not be brought up", ByHardware | BySystem, actReset},
	137: {"NVLink privilege error", "an access to another GPU's memory by NVLink was refused there: mostly a bad " +
		"address in a kernel", ByApplication | ByDriver | ByHardware, actDebugKernel},
	140: {
		"uncorrected ECC error",
		"the driver saw uncorrectable errors and could not take the memory out of use",
		ByHardware | ByDriver,
		"reset the GPU (nvidia-smi -r); if it comes back, have it replaced",
	},
	141: {"CUDA fast path error", "a shortcut of the driver failed", ByDriver | ByApplication, actNothing},
	143: {"GPU initialization error", "the GPU could not be initialized", ByHardware | ByDriver, actReset},
	144: {"NVLink SAW error", "a unit of NVLink 5 (SAW) reported an error", ByHardware | ByDriver, actNVLink5},
	145: {"NVLink RLW error", "the receiving side of NVLink 5 (RLW) reported an error; bad addresses of remote " +
		"accesses are among them", ByHardware | ByDriver | ByApplication, actNVLink5},
	146: {
		"NVLink TLW error",
		"the sending side of NVLink 5 (TLW) reported an error",
		ByHardware | ByDriver,
		actNVLink5,
	},
	147: {"NVLink TREX error", "a unit of NVLink 5 (TREX) reported an error", ByHardware | ByDriver, actNVLink5},
	148: {
		"NVLink NVLPW_CTRL error",
		"the control unit of NVLink 5 (NVLPW_CTRL) reported an error",
		ByHardware | ByDriver,
		actNVLink5,
	},
	149: {"NVLink NETIR error", "the link layer of NVLink 5 (NETIR) reported an error: a link went down, or had too " +
		"many bit errors", ByHardware | BySystem | ByDriver, actNVLink5},
	150: {
		"NVLink MSE error",
		"the management unit of NVLink 5 (MSE) reported an error",
		ByHardware | ByDriver,
		actNVLink5,
	},
	151: {"key rotation error", "confidential computing: changing the keys failed", ByDriver, "restart the virtual " +
		"machine"},
	154: {
		"recovery action changed", "it sums up what other Xids made necessary; the text says what: none, GPU " +
			"reset, node reboot, drain", ByAnother,
		"do what its text says, and look at the Xids just before it for the reason",
	},
	155: {"NVLink software error", "a link was taken down, possibly on purpose", ByDriver | ByAnother, actResetReport},
	156: {"resource retirement", "the GPU will no longer use a broken part of itself", ByHardware, "reset the GPU " +
		"when it is free, so that it takes effect"},
	157: {
		"resource retirement failed",
		"a broken part of the GPU could not be taken out of use",
		ByHardware,
		"programs may go on; expect it again, and have the GPU checked",
	},
	158: {"GPU fatal timeout", "the GPU did not answer in time and cannot go on", ByHardware | ByDriver, actReset},
	160: {"channel retirement", "memory channels were taken out of use", ByHardware, actNothing},
	161: {"channel retirement failed", "memory channels could not be taken out of use", ByHardware, actNothing},
	167: {"PCIe fatal timeout", "PCIe requests were not answered in time", ByHardware | BySystem, actReset},
	168: {"less GPU memory", "errors in a protected region of memory; ECC is off", ByHardware, "switch ECC on, so " +
		"that rows can be remapped"},
	171: {
		"uncorrectable DRAM error",
		"says of an Xid 48 that it was in the GPU's DRAM",
		ByHardware,
		"follow the Xid 48 that comes with it",
	},
	172: {
		"uncorrectable SRAM error",
		"says of an Xid 48 that it was in memory inside the GPU's chip",
		ByHardware,
		"follow the Xid 48 that comes with it",
	},
}

// xidEngines are codes of engines of which there are several, numbered in runs.
var xidEngines = []struct {
	codes []int64
	name  string
}{
	{[]int64{39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135}, "copy engine"},
	{[]int64{68, 83, 84, 88, 89, 96, 97, 98}, "video decoder (NVDEC)"},
	{[]int64{47, 65, 73, 142}, "video encoder (NVENC)"},
	{[]int64{82, 99, 100, 101, 102, 103, 104, 105}, "JPEG decoder"},
	{[]int64{139}, "optical flow engine"},
}

// DescribeXid returns what is known of a code; known is false for one that the catalogue does not have.
func DescribeXid(code int64) (e XidEntry, known bool) {
	if e, known = xidCatalogue[code]; known {
		return e, true
	}
	for _, engine := range xidEngines {
		if i := slices.Index(engine.codes, code); i >= 0 {
			return XidEntry{
				fmt.Sprintf(
					"%s %d exception",
					engine.name,
					i,
				),
				"an engine of the GPU (" + engine.name + ") got bad commands or addresses, or failed",
				ByApplication | ByDriver | ByHardware,
				actRestart,
			}, true
		}
	}
	return unknownXid, false
}

var unknownXid = XidEntry{
	Name: "unknown code", Meaning: "this version of gpurec does not know the code",
	Action: "look it up in NVIDIA's \"XID Errors\" (docs.nvidia.com/deploy/xid-errors)",
}

// SXids by what they ask for, as the Fabric Manager User Guide groups them.
var (
	SxidHarmless = []int64{
		10001,
		10002,
		10005,
		11012,
		11021,
		11022,
		11023,
		12021,
		12023,
		15008,
		15011,
		19049,
		19055,
		19057,
		19059,
		19062,
		19065,
		19068,
		19071,
		20001,
		22013,
		24001,
		24002,
		24003,
	}
	SxidFatal = []int64{
		11001,
		11009,
		11013,
		11018,
		11019,
		11020,
		12001,
		12002,
		12022,
		12024,
		12025,
		12026,
		12027,
		12030,
		12031,
		12032,
		14017,
		15001,
		15006,
		15009,
		15010,
		15012,
		15013,
		19047,
		19048,
		19054,
		19056,
		19058,
		19060,
		19061,
		19063,
		19064,
		19066,
		19067,
		19069,
		19070,
		20034,
		22012,
		24004,
		24005,
		24006,
		24007,
	}
	SxidAlwaysFatal = []int64{
		12020,
		22003,
		22011,
		23001,
		23002,
		23003,
		23004,
		23005,
		23006,
		23007,
		23008,
		23009,
		23010,
		23011,
		23012,
		23013,
		23014,
		23015,
		23016,
		23017,
	}
)

// SXids are SXids that say more than their unit.
var SXids = map[int64]XidEntry{
	10003: {
		"unhandled interrupt",
		"the NVSwitch raised an interrupt that nobody handles",
		ByHardware | ByDriver,
		"reset all GPUs and NVSwitches of the machine",
	},
	10004: {
		"NVSwitch is hot",
		"the temperature is above the limit: the switch slows down",
		BySystem,
		"check the cooling of the machine",
	},
	10005: {"NVSwitch has cooled down", "the temperature is below the limit again", BySystem, "nothing; see what " +
		"heated it"},
	11004: {
		"access refused",
		"a packet named an address that its sender may not reach",
		ByApplication | ByDriver,
		"with a virtual machine: restart it, and check the routing of the fabric; else restart the programs",
	},
	12028: {
		"access refused by a GPU",
		"a GPU answered that an access was not allowed; it has an Xid of its own",
		ByApplication | ByDriver | ByAnother,
		"with a virtual machine: restart it; else look at the GPUs' Xids",
	},
	19084: {
		"NVLink heartbeat lost",
		"the other end of a link does not answer; it comes with another, fatal SXid",
		ByHardware | ByAnother,
		"reset all GPUs and NVSwitches of the machine",
	},
	20001: {
		"NVLink replay",
		"a packet was sent again because of bit errors; corrected",
		ByHardware | BySystem,
		"nothing, unless throughput suffers",
	},
	20009: {
		"NVLink error rate",
		"many bit errors on a link in a short time",
		ByHardware | BySystem,
		"check the link and its connectors; NVLink may be slower",
	},
	20012: {
		"NVLink CRC errors",
		"the count of bit errors on a link is above its limit",
		ByHardware | BySystem,
		"check the mechanical connections of the link",
	},
	20034: {"NVLink went down", "a link was lost", ByHardware | BySystem | ByAnother, "reset the GPUs of the link, " +
		"or all of the machine if it is between switches; the GPU at its end has an Xid 74"},
	24007: {
		"NVLink answer timed out",
		"a GPU did not answer a packet in time",
		ByHardware | ByAnother,
		"reset the GPUs that took part; look for the Xid of the one that did not answer",
	},
}

// sxidUnits are the parts of an NVSwitch by thousands of the code.
var sxidUnits = map[int64]string{
	10: "host interface",
	11: "port, incoming side",
	12: "port, outgoing side",
	14: "port, transaction state",
	15: "port, routing",
	19: "NVLink transaction layer",
	20: "NVLink data link layer",
	22: "NVLink microcontroller",
	23: "crossbar",
	24: "port, tracking of requests",
	25: "NVLink control",
	26: "system processor",
	27: "cable controller",
	28: "cable temperature",
	29: "port, multicast",
	30: "port, reductions",
}

// DescribeSXid is DescribeXid for errors of an NVSwitch.
func DescribeSXid(code int64) (XidEntry, bool) {
	unit, known := sxidUnits[code/1000]
	if !known {
		return unknownXid, false
	}
	e := XidEntry{"NVSwitch: " + unit, "an error in the NVSwitch's " + unit, ByHardware, "the Fabric Manager's log " +
		"says whether it was fatal; if so, reset the GPUs that took part"}
	said := false
	if own, ok := SXids[code]; ok {
		e, said = own, true
		e.Name = "NVSwitch: " + e.Name
	}
	switch {
	case slices.Contains(SxidHarmless, code):
		e.Meaning += " (not fatal)"
		if !said {
			e.Action = "nothing: it was corrected; watch whether it comes back"
		}
	case slices.Contains(SxidFatal, code):
		e.Meaning += " (fatal for the link)"
		if !said {
			e.Action = "reset the GPUs that took part, or all GPUs and NVSwitches if it is a link between switches"
		}
	case slices.Contains(SxidAlwaysFatal, code):
		e.Meaning += " (always fatal)"
		e.Action = "reboot the machine"
	case !said:
		e.Meaning = strings.TrimSpace(e.Meaning) + "; gpurec does not know this code of it"
		return e, false
	}
	return e, true
}
