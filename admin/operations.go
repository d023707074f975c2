// Package admin lists what an operator can do with belfry: every operation, each defined once in the
// package of its subject.
//
//	admin/operation    what an operation is: parameters, role, result, plan, precondition, receipt
//	admin/jobs         list, watch, stop, correct and resume jobs; lanes, halt, limits
//	admin/enqueue      create jobs and messages, preview their reach
//	admin/schedules    recurring schedules
//	admin/upcoming     what comes next
//	admin/recipients   attached tables, segments, opt-outs, categories, erasure
//	admin/accounts     who got it, and why not
//	admin/delivery     dead letters, senders, carrier, retention
//	admin/access       tokens, users, sessions
//	admin/doctor       checks of an installation
//
// The command line, the HTTP API (admin/api) and the console (admin/console) are built from the list.
package admin

import (
	"slices"
	"sync"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/admin/schedules"
	"github.com/belfryhq/belfry/admin/upcoming"
)

// Operations returns all operations, by subject.
func Operations() []operation.Operation { return slices.Clone(operations()) }

// operations is evaluated once: each operation reads its parameters by reflection.
//
//nolint:gochecknoglobals // evaluated once
var operations = sync.OnceValue(func() []operation.Operation {
	return slices.Concat(
		jobs.Operations(),
		enqueue.Operations(),
		schedules.Operations(),
		upcoming.Operations(),
		recipients.Operations(),
		accounts.Operations(),
		delivery.Operations(),
		access.Operations(),
		doctor.Operations(),
	)
})

// Noun is what a group of operations is about.
type Noun struct {
	Name, Short string
	Aliases     []string
}

// Nouns are those of the operations' names.
func Nouns() []Noun {
	return []Noun{
		{Name: "jobs", Short: "List jobs, show one, its timeline and whom it skipped, change or approve it"},
		{Name: "lanes", Short: "List lanes, stop one, or open it again"},
		{Name: "categories", Short: "List and add categories, or change a route, quiet hours or a cap"},
		{Name: "dead-letters", Short: "List the messages that gave up, return them to the queue, or discard them", Aliases: []string{"dlq", "dead"}},
		{Name: "schedules", Short: "Keep recurring schedules: list, show, pause, add, run one now"},
		{Name: "channels", Short: "Import, count and check recipient channels, have them follow a table, and what they do not want"},
		{Name: "channels segment", Short: "Keep named sets of channels"},
		{Name: "senders", Short: "List the senders of live relays, change their limits, or stop one"},
		{Name: "transport", Short: "Show, rebuild or empty the carrier that relays take messages from"},
		{Name: "limits", Short: "Show or change how far enqueuers may go"},
		{Name: "events", Short: "Show who did what, to anything"},
		{Name: "tokens", Short: "List, make and revoke the tokens of the HTTP API"},
		{Name: "users", Short: "List, add and change the people who sign in to the HTTP API"},
		{Name: "sessions", Short: "List who is signed in to the HTTP API, or end a session"},
	}
}
