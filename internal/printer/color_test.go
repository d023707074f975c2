package printer_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/printer"
)

// Colours move nothing: without them the table is what it is on a page that has none.
func TestPage_ColoursMoveNothing(t *testing.T) {
	t.Parallel()
	told := func(colors bool) string {
		var out bytes.Buffer
		p := &printer.Page{Output: &out, Colors: colors}
		l := printer.NewTable(">ID", "STATUS", "TITLE")
		l.Add("1", "RUNNING 3 skipped", "FAILED")
		l.Add("2", "FAILED", "RUNNING")
		l.Add("3", "PENDING", "x")
		p.Table(l)
		p.Field("status", "%s, no more", "ABORTED")
		p.Field("title", "%s", "ABORTED")
		return out.String()
	}
	const without = "ID  STATUS             TITLE\n 1  RUNNING 3 skipped  FAILED\n 2  FAILED             RUNNING\n 3  PENDING            x\n" +
		"status           ABORTED, no more\ntitle            ABORTED\n"
	require.Equal(t, without, told(false))
	require.Equal(t, "ID  STATUS             TITLE\n 1  \x1b[36mRUNNING\x1b[0m 3 skipped  FAILED\n 2  \x1b[31mFAILED\x1b[0m             RUNNING\n 3  PENDING            x\n"+
		"status           ABORTED, no more\ntitle            ABORTED\n", told(true))
}

func TestCut_CountsWhatIsSeen(t *testing.T) {
	t.Parallel()
	const line = "ab\x1b[31mFAILED\x1b[0m cd"
	require.Equal(t, line, printer.Cut(line, 11))
	require.Equal(t, "ab\x1b[31mFAI\x1b[0m…", printer.Cut(line, 6))
	require.Equal(t, "ab\x1b[31mFAILED\x1b[0m …", printer.Cut(line, 10))
	require.Equal(t, "\x1b[1…", printer.Cut("\x1b[1234", 4), "no colour ends it")
	require.Equal(t, "é…", printer.Cut("éàü", 2))
	require.Equal(t, "éàü", printer.Cut("éàü", 3))
	require.Equal(t, "éàü", printer.Cut("éàü", 0))
}
