package text

import "strings"

// Tone is the meaning of a status for an operator.
type Tone string

// The tones.
const (
	Idle Tone = "idle" // has not begun, or nothing to report
	Go   Tone = "go"   // in progress
	Done Tone = "done" // finished, or healthy
	Wait Tone = "wait" // waits for a person
	Bad  Tone = "bad"  // failed
)

// tones are the tones of the words of all statuses; other words are Idle.
var tones = map[string]Tone{
	"RUNNING": Go, "DELIVERING": Go, "PROCESSING": Go, "live": Go, "sending": Go,
	"PROCESSED": Done, "SENT": Done, "ok": Done, "read": Done, "unread": Done, "sent": Done,
	"ABORTED": Wait, "WAITS": Wait, "CANCELLED": Wait, "paused": Wait, "warning": Wait, "held": Wait, "cancelled": Wait,
	"withdrawn": Wait, "inactive": Wait,
	"FAILED": Bad, "EXPIRED": Bad, "DEAD": Bad, "failed": Bad, "failing": Bad, "dead": Bad, "silent": Bad, "breaker": Bad,
	"skipped": Bad, "missing": Bad,
}

// colors are the SGR colors of the tones on a terminal.
var colors = map[Tone]string{Idle: "", Go: "36", Done: "32", Wait: "33", Bad: "31"}

// StatusCell is a status: its word, and what follows it, such as ", 3 skipped". Status makes it.
type StatusCell struct {
	Word, More string
	Tone       Tone
}

// Status returns a status with the tone of its word.
func Status[W ~string](word W, more ...string) StatusCell {
	tone, known := tones[string(word)]
	if !known {
		tone = Idle
	}
	return StatusCell{string(word), strings.Join(more, ""), tone}
}

func (c StatusCell) in(Times) string { return c.Word + c.More }

// String implements fmt.Stringer.
func (c StatusCell) String() string { return c.in(Times{}) }
