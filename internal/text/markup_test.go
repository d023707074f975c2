package text_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/belfryhq/belfry/internal/text"
)

func TestParse_ReturnsTypedCells(t *testing.T) {
	t.Parallel()
	command := text.Command
	for markup, want := range map[string]text.Line{
		"":                              nil,
		"plain - text -- x":             {text.Text("plain - text -- x")},
		"`belfry jobs list` lists jobs": {command("jobs list"), text.Text(" lists jobs")},
		"see `title`, --external-id":    {text.Text("see "), text.Code("title"), text.Text(", "), text.Param("external_id")},
		"`belfry abort 17 18`":          {command("abort", 17, 18)},
		"`belfry dead-letters list --job 17 --all`": {command("dead-letters list").Flag("job", 17).Flag("all")},
		"`belfry tokens create NAME --role ROLE`":   {command("tokens create").Usage("NAME --role ROLE")},
		"`belfry jobs set 17 lane=x`":               {func() text.CommandCell { c := command("jobs set", 17); c.Tail = "lane=x"; return c }()},
		"`belfry --help`":                           {text.Code("belfry --help")},
		"`belfry enqueue --title \"a b\"`":          {text.Code("belfry enqueue --title \"a b\"")},
		"an open ` backtick":                        {text.Text("an open ` backtick")},
	} {
		got := text.Parse(markup)
		require.Equal(t, want, got, markup)
		require.Equal(t, markup, got.String())
	}
}

type lineError struct{ line text.Line }

func (e lineError) Error() string   { return e.line.String() }
func (e lineError) Line() text.Line { return e.line }

func TestOfError_KeepsCellsOfAWrappedError(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	err := fmt.Errorf("job 17: %w; repeat --dry-run", lineError{text.Sprintf("changed at %s", at)})
	require.Equal(t, text.Line{text.Text("job 17: changed at "), text.Instant(at), text.Text("; repeat "), text.Param("dry_run")}, text.OfError(err))
	require.Equal(t, text.Line{text.Text("see "), text.Command("jobs list")}, text.OfError(errors.New("see `belfry jobs list`")))
}
