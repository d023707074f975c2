package settings

import (
	"errors"

	"github.com/belfryhq/belfry/admin/api"
	"github.com/belfryhq/belfry/outbox/inbox"
)

// Inbox configures the HTTP interface of the notification centre.
type Inbox struct {
	// Listen is HOST:PORT, or :PORT for all addresses. Empty means that it is not served. Addresses other than
	// loopback require TLS or Proxies.
	Listen string `mapstructure:"listen"`
	// Proxies are the addresses and networks of proxies that end TLS.
	Proxies []string     `mapstructure:"proxies"`
	TLS     api.TLS      `mapstructure:"tls"`
	Centre  inbox.Config `mapstructure:",squash"`
}

func defaultInbox() Inbox { return Inbox{Proxies: []string{}, Centre: inbox.DefaultConfig()} }

// Endpoint returns the address.
func (i Inbox) Endpoint() api.Endpoint {
	return api.Endpoint{
		Section: "inbox", ProxyKey: "inbox.proxies", Path: inbox.Prefix, Listen: i.Listen, TLS: i.TLS, Proxies: i.Proxies,
		Streams: i.Centre.MaxStreams,
	}
}

func (i Inbox) validate() error {
	at := i.Endpoint()
	return errors.Join(at.Validate(), at.ValidateProxies(), i.Centre.Validate())
}

// checkServed reports missing settings and unusable keys if the notification centre is served. The configuration must
// be valid.
func (i Inbox) checkServed() error {
	if i.Listen == "" {
		return nil
	}
	return i.Centre.CheckServed()
}

// shownKeys returns keys without their text.
func shownKeys(keys []inbox.Key) []inbox.Key {
	list := make([]inbox.Key, len(keys))
	for i, k := range keys {
		k.Key = hidden(k.Key)
		list[i] = k
	}
	return list
}
