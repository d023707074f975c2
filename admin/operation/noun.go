package operation

// Noun is the first word of the names of a group of operations.
type Noun struct {
	Name, Short string
	Aliases     []string
}

// Nouns returns the nouns of all operations, in the order of help texts.
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
