package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"
)

// Delivery is an event that the warehouse received.
type Delivery struct {
	EventID   string    `json:"event_id"`
	OrderID   string    `json:"order_id"`
	Customer  string    `json:"customer"`
	Item      string    `json:"item"`
	Quantity  int       `json:"quantity"`
	Attempt   int       `json:"attempt"` // from 1
	At        time.Time `json:"at"`
	LatencyMS float64   `json:"latency_ms"` // since the event was written
}

// deliveries stands for the outside world: a file with a line for each delivery,
// which outlives the process, and the newest deliveries in memory.
type deliveries struct {
	mu     sync.Mutex
	file   *os.File
	newest []Delivery // the oldest first
}

const keptDeliveries = 10_000

func newDeliveries(lc fx.Lifecycle, s Settings) (*deliveries, error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(s.DataDir, "deliveries.jsonl")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	d := &deliveries{file: file}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var delivery Delivery
		if json.Unmarshal(lines.Bytes(), &delivery) == nil { // not a line that a kill cut off
			d.keep(delivery)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("reading %s: %w", path, err), file.Close())
	}
	lc.Append(fx.StopHook(file.Close))
	return d, nil
}

func (d *deliveries) keep(delivery Delivery) {
	if len(d.newest) == 2*keptDeliveries {
		d.newest = slices.Delete(d.newest, 0, keptDeliveries)
	}
	d.newest = append(d.newest, delivery)
}

// add writes the line in a single call, so that a killed process leaves the whole line or nothing.
func (d *deliveries) add(delivery Delivery) error {
	line, err := json.Marshal(delivery)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.file.Write(append(line, '\n')); err != nil {
		return err
	}
	d.keep(delivery)
	return nil
}

// list returns the newest deliveries, of an order or of all orders, the newest first.
func (d *deliveries) list(orderID string, limit int) []Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := []Delivery{}
	for _, delivery := range slices.Backward(d.newest) {
		if len(found) == limit {
			break
		}
		if orderID == "" || delivery.OrderID == orderID {
			found = append(found, delivery)
		}
	}
	return found
}
