package recipients

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/channels"
	"github.com/belfryhq/belfry/internal/text"
)

// categoryKeys are the settings of a category.
type categoryKeys struct {
	Route    operation.Change[[]string]            `change:"route" values:"media" help:"media in the order in which they are tried, such as push,sms,alimtalk"`
	Quiet    operation.Change[channels.QuietHours] `change:"quiet_hours" reset:"none" help:"a time of day in each channel's time zone, such as 21:00-08:00, in which messages wait; or none"`
	Cap      operation.Change[channels.Cap]        `change:"cap" reset:"none" help:"the maximum number of messages to a channel per period, such as 3/24h; further messages are cancelled; or none"`
	Most     operation.Change[int]                 `change:"max_recipients" min:"1" max:"2000000000" reset:"none" allowed:"1 to 2000000000, or none" help:"the maximum number of rows that a new job without its own ceiling may write, or none"`
	Approval operation.Change[int]                 `change:"approval_above" min:"0" max:"2000000000" reset:"none" allowed:"0 (each job) to 2000000000, or none" help:"new jobs that may reach more recipients than this wait for the approval of a second person, or none; needs the role admin"`
	Hourly   operation.Change[int]                 `change:"activities_per_hour" min:"0" max:"2000000000" reset:"default" allowed:"0 to 2000000000, or default" help:"the number of activities that a requester may send per clock hour if approval_above is set, or default: 10, and 0 without the right to approve; needs the role admin"`
}

func (k categoryKeys) change() channels.CategoryChange {
	c := channels.CategoryChange{
		Quiet: k.Quiet.To, ClearQuiet: k.Quiet.Asked && k.Quiet.To == nil,
		Cap: k.Cap.To, ClearCap: k.Cap.Asked && k.Cap.To == nil,
		ApprovalAbove: k.Approval.To, ClearApprovalAbove: k.Approval.Asked && k.Approval.To == nil,
		ActivitiesPerHour: k.Hourly.To, ClearActivitiesPerHour: k.Hourly.Asked && k.Hourly.To == nil,
		MaxRecipients: k.Most.To, ClearMaxRecipients: k.Most.Asked && k.Most.To == nil,
	}
	if k.Route.To != nil {
		c.Route = *k.Route.To
	}
	return c
}

// allowed rejects changes of the approval rules by roles that are subject to them.
func (k categoryKeys) allowed(name string, env *operation.Env) error {
	if k.Approval.Asked && env.Role < operation.Admin {
		return &operation.DeniedError{Operation: name + " approval_above", Has: env.Role, Needs: operation.Admin}
	}
	if k.Hourly.Asked && env.Role < operation.Admin {
		return &operation.DeniedError{Operation: name + " activities_per_hour", Has: env.Role, Needs: operation.Admin}
	}
	return nil
}

type categoryChange struct {
	Category string `arg:"CATEGORY" values:"categories list"`
	categoryKeys
	operation.VersionFlag
	operation.Act
}

const subjectCategory = "category"

func (in categoryChange) Resource() operation.Resource {
	return operation.Resource{Subject: subjectCategory, Name: in.Category, Show: text.Command("categories list"),
		NotFound: func(ctx context.Context, env *operation.Env) error {
			return noSuchCategory(ctx, env, in.Category)
		}}
}

type newCategory struct {
	Category string `arg:"CATEGORY"`
	categoryKeys
	Description string `flag:"description" help:"purpose of the category"`
	operation.Act
}

func categoryOperations() []operation.Operation {
	return []operation.Operation{
		operation.Define(operation.Operation{
			Name: "categories list", Suggests: "name description", Short: "List categories with their settings", Role: operation.Viewer,
			Long: `List categories with the route of their messages, quiet hours, the maximum number of
messages to a channel per period, the maximum number of rows of a job, and the number of
recipients above which a job waits for the approval of a second person.

To add a category, use ` + "`belfry categories add`" + ` or INSERT INTO belfry.categories.`,
		}, func(ctx context.Context, env *operation.Env, _ operation.None) (operation.List[channels.Category], error) {
			return operation.Listed(ctx, env,
				func(ctx context.Context, tx pgx.Tx) ([]channels.Category, error) { return channels.Categories(ctx, tx) })
		}, categoriesText),
		operation.Define(operation.Operation{
			Name: "categories add", Short: "Add a category", Role: operation.Operator, Changes: true, Events: "the category's events",
			Long: `Add a category: 1 to 63 of a-z, 0-9 and _, starting with a letter. By default its messages
go by push, at any time, without a cap, a ceiling or an approval. Once a category has
approval_above, a new one needs the role admin. The keys are listed by
` + "`belfry categories set --help`" + `.`,
			SQL:   `INSERT INTO belfry.categories (name, description) VALUES ('digest', 'the weekly digest');`,
			Usage: "CATEGORY [KEY=VALUE...]",
			Example: `  belfry categories add digest --description "the weekly digest"
  belfry categories add digest route=email,push quiet_hours=21:00-08:00 cap=1/24h`,
		}, addCategory, func(p *text.Doc, _ newCategory, c channels.Category) { categoryLine(p, c) }),
		operation.Define(operation.Operation{
			Name: "categories set", Short: "Change a category's route, quiet hours, cap, ceiling or approval", Role: operation.Operator,
			Changes: true, Events: "the category's events",
			Long: `Change the settings of a category. The route applies to jobs and activities that are
enqueued from now on, max_recipients and approval_above to such jobs; quiet hours and the
cap apply to every message that is not sent yet. Keys:

{keys}`,
			Example: `  belfry categories set operator_notice route=push,sms
  belfry categories set popular_content quiet_hours=21:00-08:00 cap=3/24h --reason "fewer at night"
  belfry categories set popular_content quiet_hours=none`,
		}, setCategory, func(p *text.Doc, _ categoryChange, c channels.Category) { categoryLine(p, c) }),
		operation.Timeline{
			Noun: "categories", Values: "categories list", Subject: "category", Label: "CATEGORY",
			Short:   "Show when categories were changed, newest first",
			Example: "  belfry categories events\n  belfry categories events operator_notice --json", None: "no category has events",
		}.Events(),
	}
}

func categoriesText(p *text.Doc, _ operation.None, out operation.List[channels.Category]) {
	t := text.NewTable("CATEGORY", "ROUTE", "QUIET HOURS", "CAP", "MAX RECIPIENTS", "APPROVAL ABOVE", "DESCRIPTION")
	for _, c := range out.Items {
		t.Add(text.Ref("category", c.Name), strings.Join(c.Route, ", "), quietText(c), capText(c), numberText(c.MaxRecipients),
			numberText(c.ApprovalAbove), text.OneLine(c.Description, 80))
	}
	p.Table(t)
}

func categoryLine(p *text.Doc, c channels.Category) {
	p.Line("category %s: route %s, quiet hours %s, cap %s, max_recipients %s, approval_above %s", text.Ref("category", c.Name),
		strings.Join(c.Route, ", "), quietText(c), capText(c), numberText(c.MaxRecipients), numberText(c.ApprovalAbove))
}

func numberText(n *int) text.Cell {
	if n == nil {
		return text.Text("none")
	}
	return text.Count(*n)
}

func quietText(c channels.Category) string {
	if c.Quiet == nil {
		return "none"
	}
	return c.Quiet.String()
}

func capText(c channels.Category) string {
	if c.Cap == nil {
		return "none"
	}
	return c.Cap.String()
}

func addCategory(ctx context.Context, env *operation.Env, in newCategory) (channels.Category, error) {
	if err := in.allowed("categories add", env); err != nil {
		return channels.Category{}, err
	}
	if err := mayAddCategory(ctx, env); err != nil {
		return channels.Category{}, err
	}
	who := in.By(env)
	c, err := channels.AddCategory(ctx, env.DB, in.Category, in.Description, in.change(), channels.By(who))
	if errors.Is(err, channels.ErrCategoryExists) {
		return c, operation.Advise(channels.ErrCategoryExists,
			"change it: "+text.Command("categories set", in.Category).Usage("KEY=VALUE").String())
	}
	return c, preferenceRefused(err)
}

// mayAddCategory refuses a new category to roles below admin while another one has approval_above: jobs of
// the new one would need no approval, and each category counts the recipients of its jobs by itself.
func mayAddCategory(ctx context.Context, env *operation.Env) error {
	if env.Role >= operation.Admin {
		return nil
	}
	list, err := channels.Categories(ctx, env.DB)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(c channels.Category) bool { return c.ApprovalAbove != nil }) {
		return &operation.DeniedError{Operation: "categories add, while categories have approval_above,", Has: env.Role, Needs: operation.Admin}
	}
	return nil
}

func setCategory(ctx context.Context, env *operation.Env, in categoryChange) (channels.Category, error) {
	if err := in.allowed("categories set", env); err != nil {
		return channels.Category{}, err
	}
	who := operation.ActBy(env, in)
	c, err := channels.SetCategory(ctx, env.DB, in.Category, in.change(), channels.By(who))
	if errors.Is(err, channels.ErrNoCategory) {
		return c, noSuchCategory(ctx, env, in.Category)
	}
	return c, preferenceRefused(err)
}

// noSuchCategory returns the error of an act on a missing category.
func noSuchCategory(ctx context.Context, env *operation.Env, name string) error {
	unknown := operation.UnknownCategory(ctx, env.Reads(), name)
	if bad := new(operation.InvalidError); errors.As(unknown, &bad) {
		bad.Err = channels.ErrNoCategory // the category is the object of the act
	}
	return unknown
}

// preferenceRefused returns an error of the input for a rejected preference.
func preferenceRefused(err error) error {
	var server *pgconn.PgError
	switch {
	case !errors.Is(err, channels.ErrPreference):
		return err
	case errors.As(err, &server):
		return operation.RefusedText(server.Message, server.Hint, nil)
	}
	_, text, _ := strings.Cut(err.Error(), channels.ErrPreference.Error()+": ")
	param, problem, named := strings.Cut(text, ": ")
	if !named {
		return operation.Invalid("", "%s", text)
	}
	return operation.Invalid(param, "%s", problem)
}
