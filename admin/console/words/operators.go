package words

import (
	"strings"
	"sync"
)

// generated has the words of operations that pages replace by their own: as a whole in labels and sentences.
var generated = []string{
	"redrives and discards", "messages that were sent again or discarded", "Dead letter", "Failed message", "dead letter", "failed message",
	"would be aborted", "would be stopped", "aborted: ", "stopped: ", "Redriven", "Sent again", "redriven", "sent again", "Redrive",
	"Send again", "redrive", "send again",
}

var (
	inNotices = sync.OnceValue(func() *strings.Replacer { return strings.NewReplacer(generated...) })
	inLabels  = sync.OnceValue(func() *strings.Replacer {
		return strings.NewReplacer(append([]string{
			"only letters", "only messages", "all letters", "all messages", "of letters", "of messages", "each letter died", "each message failed",
			"LETTERS", "MESSAGES", "DEAD SINCE", "FAILED SINCE", "dead since", "failed since", "REDRIVE", "SEND AGAIN",
			"Aborting", "Stopping", "aborting", "stopping", "ABORTED", "stopped", "Aborted", "Stopped", "aborted", "stopped",
			"Abort", "Stop", "abort", "stop", "that died", "that failed",
		}, generated...)...)
	})
)

// Label returns a label, a title or a sentence about an operation in the words of pages, such as "Send again" for
// redrive. It is for texts of the program, not for data.
func Label(text string) string { return inLabels().Replace(text) }

// Notice returns a part of a result in the words of pages. The part may contain data, so that only words that no data
// has are replaced.
func Notice(text string) string { return inNotices().Replace(text) }
