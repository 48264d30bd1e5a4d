package group

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// ViaColumn is the column with the second site of memory and of launches. Tables without such a site drop it.
var ViaColumn = report.Column{
	Key: "via", Title: "VIA", Unit: report.UnitText,
	About: "line of the program for which a thread of PyTorch's autograd engine ran: it called loss.backward() or " +
		"another function of torch.autograd. Absent if it is unknown, or several threads were in such a call",
}

// Group is the name of a group. Via is the second site of its allocations, as in ViaColumn, and "" for most groups.
type Group struct{ Label, Via string }

// Text returns the name in one line.
func (g *Group) Text() string {
	if g.Via == "" {
		return g.Label
	}
	return g.Label + " via " + g.Via
}
