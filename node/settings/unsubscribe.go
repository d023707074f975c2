package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/provider"
)

// OpenLinks reads the keys of the links by which recipients opt out; nil: there are no such
// links. The error is an *UnfitError.
func (c Config) OpenLinks() (*unsubscribe.Links, error) {
	links, err := c.API.UnsubscribeLinks()
	if err != nil {
		return nil, &UnfitError{err}
	}
	return links, nil
}

// OpenSenders opens the senders, and has those whose mail links to an opt-out sign links.
// The returned function closes the clients. The error is an *UnfitError.
func (c Config) OpenSenders(links *unsubscribe.Links) (list []relay.Sender, done func() error, err error) {
	if list, done, err = c.Senders.Open(); err != nil {
		return nil, nil, err
	}
	for i, entry := range c.Senders {
		if links != nil && entry.linked() {
			list[i].Client = linking{list[i].Client, func(d sender.Delivery) string {
				return c.API.UnsubscribeURL(links, unsubscribe.Link{ChannelID: d.ChannelID, Category: d.Category, Medium: d.Medium})
			}}
		}
	}
	return list, done, nil
}

// linked reports whether what the sender sends has a link to an opt-out.
func (e Sender) linked() bool {
	mail, is := e.Settings.(*provider.SMTPConfig)
	return is && mail.ListUnsubscribe == provider.UnsubscribePlaceholder
}

// validateLinks reports the senders that need keys for links, and a place that these lead to.
func (c Config) validateLinks() []error {
	var problems []error
	needs := func(i int, key, allowed string) {
		problems = append(problems, fmt.Errorf("senders[%d].smtp.list_unsubscribe: %s needs %s, which is empty; allowed values of that: %s", i, provider.UnsubscribePlaceholder, key, allowed))
	}
	for i, entry := range c.Senders {
		if entry.linked() && c.API.UnsubscribeKeysFile == "" {
			needs(i, "api.unsubscribe_keys_file", "a file with keys")
		}
		if entry.linked() && c.API.PublicURL == "" {
			needs(i, "api.public_url", "https://HOST[:PORT][/PATH]")
		}
	}
	return problems
}

// linking is a sender whose deliveries get a link.
type linking struct {
	sender.Sender

	url func(sender.Delivery) string
}

// Send implements sender.Sender.
func (l linking) Send(ctx context.Context, batch []sender.Delivery) []sender.Result {
	batch = slices.Clone(batch)
	for i := range batch {
		batch[i].UnsubscribeURL = l.url(batch[i])
	}
	return l.Sender.Send(ctx, batch)
}
