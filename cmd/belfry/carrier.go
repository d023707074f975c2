package main

import (
	"github.com/belfryhq/belfry/admin"
	"github.com/belfryhq/belfry/node/settings"
	"github.com/belfryhq/belfry/outbox/relay"
)

// operated is the configured carrier as operations know it.
func (a *app) operated(s settings.Settings) admin.Carrier {
	c := s.Delivery.Carrier
	at, carried := c.At()
	if !carried {
		return admin.Carrier{Transport: c.Transport}
	}
	key, most := c.TakenMost()
	return admin.Carrier{
		Transport: c.Transport, Server: at, TakenKey: key, TakenMost: most, InFlight: s.Delivery.Relay.MaxInFlight,
		Open: func() (relay.Broker, error) { return c.Open(s.Delivery.Relay, a.briefLogger(s)) },
	}
}
