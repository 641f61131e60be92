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

// Delivery is what the warehouse got.
type Delivery struct {
	EventID   string    `json:"event_id"`
	OrderID   string    `json:"order_id"`
	Customer  string    `json:"customer"`
	Item      string    `json:"item"`
	Quantity  int       `json:"quantity"`
	Attempt   int       `json:"attempt"` // from 1
	At        time.Time `json:"at"`
	LatencyMS float64   `json:"latency_ms"` // from the commit
}

// deliveries stands for the world outside: a file with a line for each delivery,
// which outlives the process, and the newest of them in memory.
type deliveries struct {
	times *commitTimes

	mu     sync.Mutex
	file   *os.File
	newest []Delivery // a ring
	count  int
}

const keptDeliveries = 10_000

// deliveriesFile is in the data folder.
const deliveriesFile = "deliveries.jsonl"

func newDeliveries(lc fx.Lifecycle, s Settings) (*deliveries, error) {
	if err := os.MkdirAll(s.DataDir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(s.DataDir, deliveriesFile)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	d := &deliveries{times: newTimes(), file: file}
	if err := d.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("reading %s: %w", path, err), file.Close())
	}
	lc.Append(fx.StopHook(file.Close))
	return d, nil
}

// read takes up what an earlier run has left. Its last line may be half a one.
func (d *deliveries) read() error {
	lines := bufio.NewScanner(d.file)
	for lines.Scan() {
		var delivery Delivery
		if json.Unmarshal(lines.Bytes(), &delivery) == nil {
			d.keep(delivery)
		}
	}
	return lines.Err()
}

func (d *deliveries) keep(delivery Delivery) {
	if len(d.newest) < keptDeliveries {
		d.newest = append(d.newest, delivery)
	} else {
		d.newest[d.count%keptDeliveries] = delivery
	}
	d.count++
}

// add writes the line in one call, so that a process that is killed leaves all
// of it or nothing.
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

// list is the newest deliveries, of one order or of all, newest first.
func (d *deliveries) list(orderID string, limit int) []Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := []Delivery{}
	for i := d.count - 1; i >= max(0, d.count-len(d.newest)) && len(found) < limit; i-- {
		if delivery := d.newest[i%keptDeliveries]; orderID == "" || delivery.OrderID == orderID {
			found = append(found, delivery)
		}
	}
	return slices.Clip(found)
}
