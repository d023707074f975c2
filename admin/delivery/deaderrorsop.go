package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// deadErrorsNewest is the number of letters that are examined by default.
const deadErrorsNewest = 3_000

type deadErrorsInput struct {
	deadFilter
	All   bool `flag:"all" help:"examine all letters, for five seconds at most, instead of the newest 3,000"`
	Limit int  `flag:"limit" label:"N" help:"maximum number of errors, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
}

func deadErrorsOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "dead-letters errors", Short: "Count dead letters by error and sender", Role: operation.Operator, Rows: "errors",
		Long: `Count dead letters by medium, reason, sender and code of the last attempt, and error, the
most frequent first. EXAMPLE is one of the letters, as JOB:CHANNEL.

Texts that differ only by variable parts are one error. In ERROR # replaces a URL and any
word with an @; a single word in quotation marks, except a name in JSON; a word with a
digit, such as numbers, times, ids and tokens; 32 or more letters in a row; and a sequence
of these. It also replaces a status, which CODE contains. Only the first 300 characters of
the result are compared. Other names remain, so errors are shown to operators only.

REDRIVE is the command to redrive the letters of the error, and no others: --error selects
by medium, reason, sender, code and error.

The command examines 3,000 letters, the newest jobs first and activities last,
or with --all as many as possible in five seconds, up to 2,000 errors. It reports if there
are more.

` + deadHelp(),
		Example: `  belfry dead-letters errors
  belfry dead-letters errors --job 17 --medium sms
  belfry dead-letters errors --since 2h --json`,
	}, func(ctx context.Context, env *operation.Env, in deadErrorsInput) (DeadErrorList, error) {
		filter, err := in.find(ctx, env)
		if err != nil {
			return DeadErrorList{}, err
		}
		newest := deadErrorsNewest
		if in.All {
			newest = 0
		}
		list, err := DeadErrors(ctx, env.DB, filter, in.Limit, newest)
		return list, deadProblem(err)
	}, deadErrorsText)
}

func deadErrorsText(p *text.Doc, in deadErrorsInput, out DeadErrorList) {
	switch {
	case len(out.Errors) == 0 && in.given():
		p.Line("no dead letter matches; %s", text.Command("dead-letters errors").To("count all"))
	case len(out.Errors) == 0:
		p.Line("no dead letters: every message is sent, cancelled, or still to be sent")
	default:
		t := text.NewTable(">LETTERS", ">JOBS", "MEDIUM", "REASON", "SENDER", "CODE", "FIRST", "LAST", "EXAMPLE", "ERROR", "REDRIVE")
		for _, e := range out.Errors {
			filter := e.Filter(out.Filter)
			t.Add(deadCommand("dead-letters list", filter).As(text.Grouped(e.Letters)), e.Jobs, text.OrNone(e.Medium), string(e.Reason),
				text.OrNone(e.Sender), text.OrNone(text.OneLine(e.Code, 40)),
				e.FirstAt, e.LastAt, text.Command("dead-letters show").Flag("job", e.ExampleJobID).Flag("channel",
					e.ExampleChannelID).As(fmt.Sprintf("%d:%d", e.ExampleJobID, e.ExampleChannelID)), text.OrNone(text.OneLine(e.Error, 120)),
				deadCommand("dead-letters redrive", filter).Flag("dry-run"))
		}
		p.Table(t)
	}
	if left := out.Kinds - int64(len(out.Errors)); left > 0 {
		p.Note("showing the most frequent errors; use %s to see %s more", text.Code("--limit"), text.Count(left))
	}
	if !out.Complete && out.DownTo != nil {
		more := text.Sprintf("use %s, or a filter", text.Code("--all"))
		if in.All {
			more = text.Sprintf("use a filter")
		}
		p.Note("the newest %s were examined, down to %d:%d; there may be more, which a redrive would include; %s",
			text.Counted(out.Looked, "dead letter"), out.DownTo.JobID, out.DownTo.ChannelID, more)
	}
}

// deadCommand returns an operation on dead letters with the flags of a filter.
func deadCommand(operation string, f DeadFilter) text.CommandCell {
	c := text.Command(operation)
	if f.JobID != 0 {
		c = c.Flag("job", f.JobID)
	}
	for _, one := range []struct{ flag, value string }{{"medium", f.Medium}, {"dead-reason", string(f.Reason)},
		{"category", f.Category}, {"sender", f.Sender}, {"error", f.Error}} {
		if one.value != "" {
			c = c.Flag(one.flag, one.value)
		}
	}
	for _, bound := range []struct {
		flag string
		at   *time.Time
	}{{"since", f.Since}, {"until", f.Until}} {
		if bound.at != nil {
			c = c.Flag(bound.flag, bound.at.UTC().Format(time.RFC3339Nano))
		}
	}
	if f.ChannelID != nil {
		c = c.Flag("channel", *f.ChannelID)
	}
	return c
}
