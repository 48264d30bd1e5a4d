package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
)

// FormatValue formats a value in this unit. nil becomes "-".
func (u Unit) FormatValue(v any) string {
	if n, ok := AsNumber(v); ok && u&UnitSigned != 0 {
		u &^= UnitSigned
		if n > 0 {
			return "+" + u.FormatValue(v)
		}
	}
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		return units.SanitizeText(v)
	case bool:
		return strconv.FormatBool(v)
	case []string:
		return units.SanitizeText(strings.Join(v, "; "))
	case []int64:
		return units.Sparkline(v)
	case []float64:
		return units.Sparkline(v)
	case catalog.MetricValue:
		return v.TextWithUnit()
	case float64:
		switch u {
		case UnitPercent:
			return strconv.FormatFloat(v, 'f', 1, 64)
		case UnitBytes, UnitBytesRate:
			return units.FormatBytes(units.RoundInt(v))
		case UnitNs:
			return units.FormatDuration(units.RoundInt(v))
		}
		return strconv.FormatFloat(v, 'f', 2, 64)
	case int64:
		switch u {
		case UnitBytes, UnitBytesRate:
			return units.FormatBytes(v)
		case UnitNs:
			return units.FormatDuration(v)
		case UnitID:
			return strconv.FormatInt(v, 10)
		case UnitTime:
			return time.Unix(0, v).UTC().Format(time.RFC3339)
		}
		return units.FormatCount(v)
	}
	return fmt.Sprint(v)
}
