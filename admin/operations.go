package admin

import (
	"slices"
	"sync"
)

// Operations are all of them, by noun in the order of the help.
func Operations() []Operation { return slices.Clone(operations()) }

// operations are made once: each reads its parameters by reflection.
var operations = sync.OnceValue(func() []Operation {
	return slices.Concat(
		jobOperations(),
		auditOperations(),
		skipOperations(),
		jobActOperations(),
		[]Operation{jobSetOperation(), approveOperation(), enqueueOperation(), enqueueManyOperation(), sendOperation(), previewOperation(), testSendOperation()},
		haltOperations(),
		eventOperations(),
		laneOperations(),
		categoryOperations(),
		senderOperations(),
		limitOperations(),
		optOutOperations(),
		[]Operation{personOperation(), forgetOperation()},
		tokenOperations(),
		userOperations(),
		sessionOperations(),
		transportOperations(),
		deadOperations(),
		scheduleOperations(),
		[]Operation{upcomingOperation()},
		segmentOperations(),
		attachOperations(),
		[]Operation{countOperation(), checkOperation(), pruneOperation(), statusOperation(), healthOperation(), adoptOperation(), doctorOperation(), rolesOperation()},
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
