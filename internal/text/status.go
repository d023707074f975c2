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
	"FAILED": Bad, "EXPIRED": Bad, "DEAD": Bad, "failed": Bad, "dead": Bad, "silent": Bad, "breaker": Bad, "skipped": Bad, "missing": Bad,
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

// statusColumns are the columns and fields whose plain text begins with a status.
// Their cells become StatusCells.
var statusColumns = []string{"STATUS", "STATE", "OUTCOME"}

// statusIn returns the status at the beginning of a text.
func statusIn(text string) StatusCell {
	end := strings.IndexAny(text, " ,")
	if end < 0 {
		end = len(text)
	}
	return Status(text[:end], text[end:])
}

// Status returns the status at the beginning of a text.
// Use the function Status.
func (d *Doc) Status(text string) StatusCell { return statusIn(text) }

// withStatus returns a line whose first text begins with a status.
func withStatus(l Line) Line {
	if len(l) == 0 {
		return l
	}
	first, is := l[0].(Text)
	if !is {
		return l
	}
	before, after, more := strings.Cut(string(first), "; ")
	status := Line{statusIn(before)}
	if more {
		status = append(status, Text("; "+after))
	}
	return append(status, l[1:]...)
}
