package words

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

func TestLabel_HasTheWordsOfPages(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"Dead letters": "Failed messages", "dead letter": "failed message", "REDRIVE": "SEND AGAIN", ">LETTERS": ">MESSAGES", "abort": "stop",
		"Return every dead letter that matches to the queue": "Return every failed message that matches to the queue",
		"Show redrives and discards, newest first":           "Show messages that were sent again or discarded, newest first",
		"only letters that died then or later":               "only messages that failed then or later",
		"1 to 50 letters and digits":                         "1 to 50 letters and digits",
	} {
		require.Equal(t, want, Label(label))
	}
	require.Equal(t, "stopped, by ann", CellStatus(text.Status("aborted", ", by ann")).Word)
	require.Equal(t, "failed messages: would be sent again: 5 messages", Notice("dead letters: would be redriven: 5 messages"))
	require.Equal(t, "the reason: aborted", Notice("the reason: aborted"), "a reason stays")
}
