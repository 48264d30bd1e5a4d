package report

import "strings"

func ConfidenceText(level string, reasons []string) string {
	if len(reasons) == 0 {
		return "confidence " + level
	}
	return "confidence " + level + ": " + strings.Join(reasons, ", ")
}
