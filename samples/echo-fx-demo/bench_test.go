package main_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/internal/testing/testdb"
)

// BenchmarkOrders places orders over 16 connections, and waits until each is
// delivered.
func BenchmarkOrders(b *testing.B) {
	for _, target := range testdb.Main() {
		b.Run(target.Name, func(b *testing.B) {
			p := newPlace(b, target)
			s := p.start(b)
			var serial atomic.Int64
			b.SetParallelism(8) // times two processors
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					status, answer, err := s.call(http.MethodPost, "/orders", fmt.Sprintf(`{"customer":"c%d","item":"tea","quantity":1}`, serial.Add(1)))
					if err != nil || status != http.StatusCreated {
						b.Errorf("%d %s %v", status, answer, err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
			b.StopTimer()
			require.Eventually(b, func() bool {
				byOrder, _ := p.delivered(b)
				return len(byOrder) == b.N
			}, time.Minute, 50*time.Millisecond)
		})
	}
}
