package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/db"
	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
	"github.com/belfryhq/belfry/outbox"
)

func newSendCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send {CHANNEL | --external-id ID} --title TITLE",
		Short: "Send one message to one channel, ahead of every bulk",
		Long: `Send one message to one channel: an activity, as a like, a comment or a receipt. It
waits behind no bulk job. Its id, which is negative, is printed; the message is due when
the command is done, and whatever relay runs delivers it.

TITLE, TEXT and variants may refer to the channel, as {{attributes.name | default "friend"}}.

The same by SQL, inside any transaction:
SELECT belfry.send(4711, 'activity', 'Ann likes your photo');`,
		Example: `  belfry send 4711 --title "Ann likes your photo"
  belfry send --external-id user-4711 --title "Your order is on its way" --category operator_notice \
    --route push,alimtalk,sms --idempotency-key order-17-shipped
  belfry send 4711 --title "Good morning" --variants '{"ko": {"title": "좋은 아침"}}' --deliver-at "2026-11-20 08:50"`,
	}
	s := addSendFlags(a, cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%s takes one CHANNEL, got %s", named(cmd), printer.Counted(int64(len(args)), "argument"))
		}
		if (len(args) == 1) == cmd.Flags().Changed("external-id") {
			return usagef("%s takes either CHANNEL, the id of one, or --external-id ID", named(cmd))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		to := channelFlags{id: &parsed[int64]{}, external: s.external}
		if len(args) == 1 {
			id, err := parseChannel(args[0])
			if err != nil {
				return usagef("%q is not a channel's id; %w", printer.OneLine(args[0], 60), err)
			}
			to.id.value = &id
		}
		values, err := s.values(a, cmd)
		if err != nil {
			return err
		}
		return to.with(a, cmd, func(ctx context.Context, db *database, channel int64) error {
			values["channel_id"] = channel
			return a.send(ctx, db, values, *s.json)
		})
	}
	return cmd
}

// sendFlags are the flags of `belfry send`.
type sendFlags struct {
	external, category, title, body *string
	data, variants                  *string
	route                           *parsed[[]string]
	deliverAt                       *parsed[time.Time]
	idempotencyKey, request         *string
	json                            *bool
}

func addSendFlags(a *app, cmd *cobra.Command) sendFlags {
	f := cmd.Flags()
	f.SortFlags = false
	return sendFlags{
		external:       f.String("external-id", "", "the channel with this external `ID`, instead of CHANNEL"),
		category:       f.String("category", "activity", "`CATEGORY`: activity, or another of belfry.categories"),
		title:          f.String("title", "", "`TITLE`, 1 to 200 characters"),
		body:           f.String("body", "", "`TEXT`, up to 10,000 characters"),
		data:           f.String("data", "", "further content as a `JSON` object, up to 16,384 bytes"),
		variants:       addVariants(cmd, ""),
		route:          addRoute(cmd),
		deliverAt:      flagOf(f, "deliver-at", "TIME", "deliver it at this time (default: at once)", instantParser(a.now, time.Local)),
		idempotencyKey: f.String("idempotency-key", "", "`KEY` with which repeating the command returns the first activity"),
		request:        f.String("requested-by", "", "`WHO` asks (default: user@host)"),
		json:           addJSON(cmd),
	}
}

// values are the parameters of ActivitySend but for the channel. They are checked as far
// as that takes no database.
func (s sendFlags) values(a *app, cmd *cobra.Command) (pgx.StrictNamedArgs, error) {
	if strings.TrimSpace(*s.title) == "" {
		return nil, usagef("--title needed")
	}
	values := pgx.StrictNamedArgs{
		"category": *s.category, "title": *s.title, "body": *s.body, "data": nil, "variants": nil, "route": s.route.or(nil),
		"deliver_at": s.deliverAt.value, "idempotency_key": nil, "requested_by": *s.request,
	}
	if *s.request == "" {
		values["requested_by"] = a.whoami()
	}
	if cmd.Flags().Changed("idempotency-key") {
		values["idempotency_key"] = *s.idempotencyKey
	}
	if cmd.Flags().Changed("data") {
		data, err := dataOf(*s.data)
		if err != nil {
			return nil, err
		}
		values["data"] = string(data)
	}
	if cmd.Flags().Changed("variants") {
		variants, err := variantsOf(*s.variants)
		if err != nil {
			return nil, err
		}
		values["variants"] = string(variants)
	}
	return values, nil
}

// send inserts the activity and prints its id.
func (a *app) send(ctx context.Context, db *database, values pgx.StrictNamedArgs, asJSON bool) error {
	before, err := db.now(ctx)
	if err != nil {
		return err
	}
	var id int64
	if err := db.Pool.QueryRow(ctx, queries.activitySend, values).Scan(&id); err != nil {
		return sendProblem(err, values["idempotency_key"] != nil)
	}
	sent, err := outbox.ReadActivity(ctx, db.Pool, id)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(sent)
	}
	a.printf("%d\n", sent.ID)
	by := strings.Join(sent.Route, ", ")
	switch {
	case sent.CreatedAt.Before(before):
		a.remark("activity %d was sent before, at %s, with the same idempotency key; its message is %s", sent.ID, printer.Clock(sent.CreatedAt), printer.OrNone(sent.Status))
	case sent.DeliverAt != nil && sent.DeliverAt.Sub(before) > time.Second:
		a.remark("activity %d to channel %d by %s, due %s, in %s", sent.ID, sent.ChannelID, by, printer.Clock(*sent.DeliverAt), printer.Short(sent.DeliverAt.Sub(before)))
	default:
		a.remark("activity %d to channel %d by %s, due now; a running daemon or `belfry relay` delivers it", sent.ID, sent.ChannelID, by)
	}
	return nil
}

// sendProblem names the flag at fault for what the database refused, and says how to
// repeat a command whose outcome is unknown.
func sendProblem(err error, repeatable bool) error {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		if message, is := db.Refusal(server); is {
			return refused("activities", &job.InvalidError{Column: server.ColumnName, Message: message, Hint: server.Hint})
		}
		if db.ClassOf(err) == db.Invalid { // a value no column takes: a NUL, a number beyond every type
			return usagef("%s", withHint(server.Message, server.Detail))
		}
	}
	if server != nil && db.ClassOf(err) != db.Unreachable {
		return fmt.Errorf("send: %w", err)
	}
	// Whatever is not the server's answer leaves the outcome open.
	err = fmt.Errorf("send: %w: %w", job.ErrUnreachable, err)
	if repeatable {
		return withAdvice(err, "it may have been sent; repeating it with the same --idempotency-key is safe")
	}
	return withAdvice(err, "it may have been sent; --idempotency-key makes repeating safe")
}
