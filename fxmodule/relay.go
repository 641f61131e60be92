package outboxfx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.uber.org/fx"

	"github.com/outboxkit/outbox-go/outbox"
	"github.com/outboxkit/outbox-go/relay"
)

// AsRelay publishes events to a message broker. The constructor returns a [relay.Config], or a
// config and an error; routes are added to the routes of the config. The options are [For], and
// [As] if the events have other listeners too. When the app stops, the publisher is closed after
// the outboxes have drained. A constructor that returns an error must close the resources that it
// has made.
//
//	outboxfx.AsRelay(newRelay, []relay.Route{relay.To("orders.placed", orderPlaced.Kind())})
//
//	func newRelay(s Settings) (relay.Config, error) {
//		publisher, err := relaynats.New(relaynats.Config{URL: s.NATS})
//		return relay.Config{Publisher: publisher, Source: "/orders"}, err
//	}
func AsRelay(ctor any, routes []relay.Route, opts ...ListenerOption) fx.Option {
	o := join(opts)
	if len(o.names) > 1 {
		return fx.Error(fmt.Errorf("outboxfx: AsRelay takes one As, and has %q", o.names))
	}
	return contributeClosing("AsRelay", "relay", ctor, o, func(cfg relay.Config) ([]outbox.Binding, closer, error) {
		cfg.Routes = slices.Concat(cfg.Routes, routes)
		r, err := relay.New(cfg)
		if err != nil { // nothing else will close the resources of the relay
			if cfg.Publisher != nil {
				err = errors.Join(err, cfg.Publisher.Close(context.Background()))
			}
			if m, ok := cfg.Metrics.(io.Closer); ok {
				err = errors.Join(err, m.Close())
			}
			return nil, nil, err
		}
		return r.Bindings(outbox.Named(strings.Join(o.names, ""))), r.Close, nil
	})
}
