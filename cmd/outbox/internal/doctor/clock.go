package doctor

import (
	"context"
	"fmt"
	"time"
)

// clock compares this machine's clock with the server's. The answer took a while, so the difference
// is uncertain by half of this time.
func (p *patient) clock(ctx context.Context) error {
	sent := p.Now()
	server, err := p.Store.Now(ctx, p.DB)
	if err != nil {
		return err
	}
	took := p.Now().Sub(sent)
	difference := server.Sub(sent.Add(took / 2)).Round(time.Millisecond)
	if difference.Abs()-took/2 < p.Limits.ClockDifference {
		p.report(OK, fmt.Sprintf("the server's clock differs by %s at most from this machine's", (difference.Abs()+took/2).Round(time.Millisecond)), "")
		return nil
	}
	direction := "ahead of"
	if difference < 0 {
		direction = "behind"
	}
	p.report(Warning, fmt.Sprintf("the server's clock is %s %s this machine's: delayed events and retries come that much early or late, and purging too", difference.Abs(), direction),
		"synchronize both clocks, with NTP for example")
	return nil
}
