package settings

import (
	"context"
	"fmt"
	"slices"

	"github.com/belfryhq/belfry/channels/unsubscribe"
	"github.com/belfryhq/belfry/node"
	"github.com/belfryhq/belfry/outbox/relay"
	"github.com/belfryhq/belfry/outbox/sender"
	"github.com/belfryhq/belfry/outbox/sender/provider"
)

// OpenLinks reads the keys of opt-out links. It returns nil if none are configured. The error is a
// *node.ConfigError.
func (c Config) OpenLinks() (*unsubscribe.Links, error) {
	links, err := c.API.UnsubscribeLinks()
	if err != nil {
		return nil, &node.ConfigError{Err: err}
	}
	return links, nil
}

// OpenSenders opens the senders. Those whose mail contains an opt-out link sign it with links. The returned
// function closes the clients. The error is a *node.ConfigError.
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

// linked reports whether the sender's mail contains an opt-out link.
func (e Sender) linked() bool {
	mail, is := e.Settings.(*provider.SMTPConfig)
	return is && mail.ListUnsubscribe == provider.UnsubscribePlaceholder
}

// validateLinks reports senders with opt-out links that lack the keys or the public URL.
func (c Config) validateLinks() []error {
	var problems []error
	needs := func(i int, key, allowed string) {
		problems = append(problems,
			fmt.Errorf("senders[%d].smtp.list_unsubscribe: %s needs %s, which is empty; allowed values of that: %s", i,
				provider.UnsubscribePlaceholder, key, allowed))
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

// linking is a sender that adds opt-out links to deliveries.
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
