package text

import (
	"fmt"
	"time"
)

// PaceText renders a rate per second and the remaining time. It returns "" without a rate, and omits a
// negative time.
func PaceText(perSecond *float64, left time.Duration) string {
	if perSecond == nil {
		return ""
	}
	text := fmt.Sprintf(", %s/s", Grouped(int64(*perSecond+0.5)))
	if left > 0 {
		text += ", " + Short(left) + " left"
	}
	return text
}

// Bar draws a part of a whole in so many characters.
func Bar(part, whole int64, width int) string {
	const full, empty = "########################################", "----------------------------------------"
	width = min(width, len(full))
	n := 0
	if whole > 0 {
		n = int(max(0, min(int64(width), int64(width)*part/whole)))
	}
	return "[" + full[:n] + empty[:width-n] + "]"
}
