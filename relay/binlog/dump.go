package binlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// dump is a connection on which the server sends the log, and the goroutine that reads the connection.
type dump struct {
	conn    *client.Conn
	raw     net.Conn
	decoder *decoder
	silence time.Duration

	// messages closes when the stream ends; err says why.
	messages chan message
	err      error
	end      chan struct{} // closes when nobody takes messages
}

const (
	// silence is after how many keepalives a silent server counts as dead.
	silence = 3
	// ahead is how many messages are read before they are taken. A message has at most the rows of an event,
	// which the server makes 8 kB large, or larger for a single row.
	ahead = 8
	// patience is how long the server waits until it can send, in seconds. By default the server ends the
	// connection after a minute, in which a broker may well be away.
	patience = 86_400
)

// dump connects as a replica of a number, and asks for the log after a position. It returns when the server has
// begun to send.
func (s *session) dump(ctx context.Context, id uint32, from position, tables map[string]bool) (*dump, error) {
	d := &dump{
		decoder: newDecoder(s.mariadb, tables), silence: silence * s.r.cfg.Keepalive,
		messages: make(chan message, ahead), end: make(chan struct{}),
	}
	if err := s.request(ctx, d, s.command(id, from), from); err != nil {
		if d.conn != nil {
			_ = d.conn.Close()
		}
		return nil, fmt.Errorf("binlog: asking for the log: %w", s.serverError(err))
	}
	go d.read()
	return d, nil
}

// request connects, asks for the log, and reads the first packet, in which the server says whether it has the
// log. When ctx ends meanwhile, the connection is closed.
func (s *session) request(ctx context.Context, d *dump, command []byte, from position) error {
	stop := func() bool { return true }
	defer func() { _ = stop() }()
	conn, err := s.replica(ctx, d.silence, func(conn net.Conn) {
		d.raw, stop = conn, context.AfterFunc(ctx, func() { _ = conn.Close() })
	})
	if err != nil {
		return err
	}
	d.conn = conn
	checksum := "SET @source_binlog_checksum = 'NONE', @master_binlog_checksum = 'NONE'"
	if s.mariadb {
		checksum = "SET @master_binlog_checksum = 'NONE', @mariadb_slave_capability = 4, @slave_gtid_strict_mode = 1, @slave_connect_state = '" + from.String() + "'"
	}
	period := s.r.cfg.Keepalive.Nanoseconds()
	for _, statement := range []string{
		checksum,
		fmt.Sprintf("SET @master_heartbeat_period = %d, @source_heartbeat_period = %d", period, period),
		fmt.Sprintf("SET SESSION net_write_timeout = %d", patience),
	} {
		if _, err := d.conn.Execute(statement); err != nil {
			return err
		}
	}
	d.conn.ResetSequence()
	if err := d.conn.WritePacket(command); err != nil {
		return err
	}
	if err := d.packet(); err != nil {
		return err
	}
	if !stop() {
		return ctx.Err()
	}
	return d.raw.SetWriteDeadline(time.Time{})
}

// replica opens a connection, and gives it to dialed. The server has a time for the greeting and all answers.
func (s *session) replica(ctx context.Context, limit time.Duration, dialed func(conn net.Conn)) (*client.Conn, error) {
	cfg := s.r.dsn
	timeout := cfg.Timeout
	if timeout == 0 {
		timeout = connectTimeout
	}
	dialer := net.Dialer{Timeout: timeout}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		dialed(conn)
		return conn, conn.SetDeadline(time.Now().Add(limit))
	}
	return client.ConnectWithDialer(ctx, cfg.Net, cfg.Addr, cfg.User, cfg.Passwd, "", dial, func(c *client.Conn) error {
		if s.tls && cfg.TLS != nil {
			c.SetTLSConfig(cfg.TLS)
		}
		c.SetAttributes(map[string]string{"program_name": "outbox cdc"})
		return nil
	})
}

// command is the packet that asks for the log, without the sum of its header.
func (s *session) command(id uint32, from position) []byte {
	data := make([]byte, 4, 64) // the header
	if s.mariadb {              // the variable slave_connect_state has the position
		data = append(data, gomysql.COM_BINLOG_DUMP)
		data = binary.LittleEndian.AppendUint32(data, 4)
		data = binary.LittleEndian.AppendUint16(data, 0)
		return binary.LittleEndian.AppendUint32(data, id)
	}
	gtids := from.mysql.Encode()
	data = append(data, gomysql.COM_BINLOG_DUMP_GTID)
	data = binary.LittleEndian.AppendUint16(data, 0)
	data = binary.LittleEndian.AppendUint32(data, id)
	data = binary.LittleEndian.AppendUint32(data, 0) // no name of a file
	data = binary.LittleEndian.AppendUint64(data, 4)
	data = binary.LittleEndian.AppendUint32(data, uint32(len(gtids)))
	return append(data, gtids...)
}

// serverError gives an error of the server the sentinel of this package.
func (s *session) serverError(err error) error {
	var e *gomysql.MyError
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case lost(e.Code, e.Message):
		return s.lost(e.Message)
	case e.Code == denied || e.Code == deniedToUser:
		return notSetUp("the user may not read the log: %w; run: GRANT %s ON *.* TO the user of DSN", err, s.grant())
	}
	return err
}

// read reads packets until the stream ends.
func (d *dump) read() {
	defer close(d.messages)
	defer func() {
		if p := recover(); p != nil { // of the library; the value may have a payload in it
			d.err = errors.New("an event of the log cannot be read: the library panicked")
		}
	}()
	for d.err == nil {
		d.err = d.packet()
	}
}

// packet reads a packet, and sends what it says.
func (d *dump) packet() error {
	deadline := time.Now().Add(d.silence)
	if err := d.raw.SetReadDeadline(deadline); err != nil {
		return err
	}
	data, err := d.conn.ReadPacket()
	if err != nil {
		if !time.Now().Before(deadline) { // the library does not wrap the cause
			err = fmt.Errorf("the server was silent for %s", d.silence)
		}
		return err
	}
	switch {
	case len(data) == 0:
		return errors.New("the server sent an empty packet")
	case data[0] == gomysql.ERR_HEADER:
		return d.conn.HandleErrorPacket(data)
	case data[0] == gomysql.EOF_HEADER:
		return errors.New("the server ended the stream")
	}
	list, err := d.decoder.packet(data[1:])
	for _, m := range list {
		select {
		case d.messages <- m:
		case <-d.end:
			return net.ErrClosed
		}
	}
	return err
}

// close ends the stream, and returns when nothing reads the connection.
func (d *dump) close() {
	close(d.end)
	_ = d.raw.Close()      // conn.Close writes what read reads
	for range d.messages { // until read has ended
	}
}

// message is what an event of the log says.
type message struct {
	rows []row
	// gtid is the event that began the transaction that ends, or nil.
	gtid replication.Event
	at   time.Time // when it committed
}
