package delivery

import (
	"context"
	"fmt"
	"time"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/internal/text"
)

// deadErrorsNewest is how many letters are looked at unless all are to be.
const deadErrorsNewest = 3_000

type deadErrorsInput struct {
	deadFilter
	All   bool `flag:"all" help:"look at all letters, for five seconds at most, rather than at the newest 3,000"`
	Limit int  `flag:"limit" label:"N" help:"at most so many errors, 1 to 1000 (default 100)" min:"1" max:"1000" default:"100"`
}

func deadErrorsOperation() operation.Operation {
	return operation.Define(operation.Operation{
		Name: "dead-letters errors", Short: "Count dead letters by what they died of: error and sender", Role: operation.Operator, Rows: "errors",
		Long: `Count dead letters by what they died of: medium, reason, sender and code of the last
attempt, and error, those of most letters first. EXAMPLE is one of them, as JOB:CHANNEL.

Texts that differ by whom or what they are about are one error. In ERROR # stands for
an address of a web page and whatever has an @ in it; for one word in quotation marks,
unless it is a name in JSON; for a word with a digit in it, as numbers, times, ids and
tokens; for 32 letters and more in a row; and for several of these one after the other.
That is a status in a text, too, which CODE tells. The first 300 characters
of what is left count. Names among other words stay, so errors are shown to operators.

REDRIVE says what a redrive of the error would do, by medium and reason: there is no
filter by error. OTHERS are letters of other errors that it would take as well.

It looks at 3,000 letters, those of the newest jobs first and of activities last, or with
--all at as many as it can in five seconds, until there are 2,000 errors, and says so if
there are more.

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
		p.Printf("no dead letter matches; `belfry dead-letters errors` without flags counts all\n")
	case len(out.Errors) == 0:
		p.Printf("no dead letters: every message is sent, cancelled, or still to be sent\n")
	default:
		t := text.NewTable(">LETTERS", ">JOBS", "MEDIUM", "REASON", "SENDER", "CODE", "FIRST", "LAST", "EXAMPLE", "ERROR", ">OTHERS", "REDRIVE")
		for _, e := range out.Errors {
			t.Add(text.Grouped(e.Letters), text.Grouped(e.Jobs), text.OrNone(e.Medium), string(e.Reason), text.OrNone(e.Sender), text.OrNone(text.OneLine(e.Code, 40)),
				e.FirstAt, e.LastAt, text.Command("dead-letters show").Flag("job", e.ExampleJobID).Flag("channel", e.ExampleChannelID).As(fmt.Sprintf("%d:%d", e.ExampleJobID, e.ExampleChannelID)), text.OrNone(text.OneLine(e.Error, 120)),
				text.Grouped(e.Others), deadCommand("dead-letters redrive", e.Filter(out.Filter)).Flag("dry-run"))
		}
		p.Table(t)
	}
	if left := out.Kinds - int64(len(out.Errors)); left > 0 {
		p.Note("these are the errors of most letters; there are %s more: --limit", text.Grouped(left))
	}
	if !out.Complete && out.DownTo != nil {
		more := "--all looks at them, and a filter at fewer"
		if in.All {
			more = "a filter looks at fewer"
		}
		p.Note("the newest %s were looked at, down to %d:%d, and there may be more, which a redrive would take as well; %s",
			text.Counted(out.Looked, "dead letter"), out.DownTo.JobID, out.DownTo.ChannelID, more)
	}
}

// deadCommand returns an operation on dead letters with the flags of a filter.
func deadCommand(operation string, f DeadFilter) text.CommandCell {
	c := text.Command(operation)
	if f.JobID != 0 {
		c = c.Flag("job", f.JobID)
	}
	for _, one := range []struct{ flag, value string }{{"medium", f.Medium}, {"dead-reason", string(f.Reason)}, {"category", f.Category}, {"sender", f.Sender}} {
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
