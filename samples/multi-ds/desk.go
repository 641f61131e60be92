package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// desk takes the requests.
type desk struct {
	orders    *orders
	inventory *inventory
}

func newDesk(orders *orders, inventory *inventory) *desk { return &desk{orders, inventory} }

// request places an order and reserves the item: two databases, two transactions, two events. No
// transaction spans both databases. When the second transaction fails, the first has committed and
// its event will be delivered, so the desk cancels the order, with an event that says so.
func (d *desk) request(ctx context.Context, item string) (Order, error) {
	order := Order{ID: rand.Text()[:10], Item: item, Status: "placed"}
	if err := d.orders.place(ctx, order); err != nil {
		return order, err
	}
	if err := d.inventory.reserve(ctx, order); err != nil {
		return order, errors.Join(err, d.orders.cancel(ctx, order))
	}
	return order, nil
}

// ledger is the listener of both outboxes.
type ledger struct {
	mu      sync.Mutex
	entries map[string][]string // events by order
}

func newLedger() *ledger { return &ledger{entries: make(map[string][]string)} }

// OnEvent implements [outbox.Listener]. The events of an order come from two
// databases, in no particular order.
func (l *ledger) OnEvent(_ context.Context, env outbox.Envelope) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := append(l.entries[env.AggregateID], string(env.EventType))
	slices.Sort(entries)
	l.entries[env.AggregateID] = slices.Compact(entries) // at least once
	return nil
}

func (l *ledger) of(orderID string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.entries[orderID], ", ")
}

// show makes two requests and prints their results. An unexpected result is an
// error.
func show(ctx context.Context, desk *desk, ledger *ledger) error {
	fmt.Printf("orders:    GORM on %s\ninventory: bun on %s\n\n", desk.orders.where, desk.inventory.where)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "ordered\tanswer\torder\treservation\tevents delivered")
	var errs []error
	for _, wanted := range []struct {
		item, answer, status string
		reserved             bool
		events               string
	}{
		{"teapot", "placed", "placed", true, "OrderPlaced, StockReserved"},
		{"unicorn", "sold out", "cancelled", false, "OrderCancelled, OrderPlaced"},
	} {
		order, err := desk.request(ctx, wanted.item)
		answer := "placed"
		if err != nil {
			answer = err.Error()
		}
		for range 1000 {
			if ledger.of(order.ID) == wanted.events {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		status, err1 := desk.orders.status(ctx, order.ID)
		reserved, err2 := desk.inventory.reserved(ctx, order.ID)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%t\t%s\n", order.Item, answer, status, reserved, ledger.of(order.ID))
		if answer != wanted.answer || status != wanted.status || reserved != wanted.reserved || ledger.of(order.ID) != wanted.events {
			errs = append(errs, fmt.Errorf("the %s should be %+v", wanted.item, wanted))
		}
	}
	if err := errors.Join(table.Flush(), errors.Join(errs...)); err != nil {
		return err
	}
	fmt.Println("\nThe reservation of the unicorn was rolled back, and its event with it. The order had\ncommitted before, so it was taken back with an event of its own.")
	return nil
}
