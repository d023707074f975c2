package text_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

// Colors do not change the widths of columns.
func TestTerminal_ColorsMoveNothing(t *testing.T) {
	t.Parallel()
	render := func(colors bool) string {
		var out bytes.Buffer
		(&text.Terminal{Output: &out, Colors: colors}).Show(func(d *text.Doc) {
			l := text.NewTable(">ID", "STATUS", "TITLE")
			l.Add(text.Ref("job", 1), text.Status("RUNNING", " 3 skipped"), "FAILED")
			l.Add(text.Ref("job", 2), text.Live("2.status", text.Status("FAILED")), "RUNNING")
			l.Add(text.Ref("job", 3), text.Status("PENDING"), "x")
			d.Table(l)
			d.Field("status", "%s, no more", text.Status("ABORTED"))
			d.Field("title", "%s", "ABORTED")
		})
		return out.String()
	}
	const without = "ID  STATUS             TITLE\n 1  RUNNING 3 skipped  FAILED\n 2  FAILED             RUNNING\n 3  PENDING            x\n" +
		"status           ABORTED, no more\ntitle            ABORTED\n"
	require.Equal(t, without, render(false))
	require.Equal(t, "ID  STATUS             TITLE\n 1  \x1b[36mRUNNING\x1b[0m 3 skipped  FAILED\n 2  \x1b[31mFAILED\x1b[0m             RUNNING\n 3  PENDING            x\n"+
		"status           \x1b[33mABORTED\x1b[0m, no more\ntitle            ABORTED\n", render(true))
}

// A document has its blocks in order: data in the output, remarks apart.
func TestTerminal_RendersADocument(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 9, 0, 12, 0, time.UTC)
	var out, notes bytes.Buffer
	(&text.Terminal{Output: &out, Notes: &notes, Times: text.Times{Zone: time.UTC}}).Show(func(d *text.Doc) {
		d.Line("lane %s is paused since %s; %d %s", text.Ref("lane", "night"), at, 12, text.Count(1234))
		d.Line("%s", text.Command("lanes resume", "night").To("resume it"))
		d.Heading("jobs")
		d.Field("last", "%s", text.Or(nil, "never"))
		d.Field("share", "100 %%")
		table := text.NewTable("JOB", ">ROWS", "TOOK", "AT")
		table.Add(text.Ref("job", int64(12345)).As("Hello"), int64(1234), 90*time.Minute, &at)
		d.Table(table)
		d.Note("%s shows all", text.Command("jobs list"))
	})
	require.Equal(t, "lane night is paused since 2026-11-20 09:00:12+00:00; 12 1,234\nresume it: `belfry lanes resume night`\n\njobs:\n"+
		"last             never\nshare            100 %\nJOB     ROWS  TOOK   AT\nHello  1,234  1h30m  2026-11-20 09:00:12+00:00\n", out.String())
	require.Equal(t, "`belfry jobs list` shows all\n", notes.String())
}

func TestCommand_IsALineForAShell(t *testing.T) {
	t.Parallel()
	c := text.Command("dead-letters redrive").Flag("job", 17).Flag("sender", "it's").Flag("dry-run")
	require.Equal(t, `belfry dead-letters redrive --job 17 --sender 'it'\''s' --dry-run`, c.Shell())
	require.Equal(t, "`"+c.Shell()+"`", c.String())
	require.Equal(t, "17", c.As("17").String())
	require.Equal(t, "make one: `belfry tokens create NAME --role ROLE`", text.Command("tokens create").Usage("NAME --role ROLE").To("make one").String())
}

func TestSprintf_KeepsCells(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 9, 0, 12, 0, time.UTC)
	inner := text.Sprintf("by %s", text.Ref("user", "ann"))
	require.Equal(t, text.Line{text.Text("50% at "), text.Instant(at), text.Text(" by "), text.Ref("user", "ann"), text.Text("   7")}, text.Sprintf("%d%% at %s %s%4d", 50, at, inner, 7))
	require.Equal(t, text.Line{text.Ref("lane", "a"), text.Text(", "), text.Ref("lane", "b")}, text.Join([]text.RefCell{text.Ref("lane", "a"), text.Ref("lane", "b")}, ", "))
}

func TestCut_CountsWhatIsSeen(t *testing.T) {
	t.Parallel()
	const line = "ab\x1b[31mFAILED\x1b[0m cd"
	require.Equal(t, line, text.Cut(line, 11))
	require.Equal(t, "ab\x1b[31mFAI\x1b[0m…", text.Cut(line, 6))
	require.Equal(t, "ab\x1b[31mFAILED\x1b[0m …", text.Cut(line, 10))
	require.Equal(t, "\x1b[1…", text.Cut("\x1b[1234", 4), "no colour ends it")
	require.Equal(t, "é…", text.Cut("éàü", 2))
	require.Equal(t, "éàü", text.Cut("éàü", 3))
	require.Equal(t, "éàü", text.Cut("éàü", 0))
}
