// An echo server and its client on Go's net package. Built with gccgo, whose runtime waits and makes its system calls by the C library.
//
//	go_echo serve PORT             echoes what each connection sends, a goroutine for each
//	go_echo send PORT COUNT SIZE   COUNT connections at once, each sends SIZE bytes and checks the echo; prints "ok COUNT"
package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"strconv"
	"time"
)

func die(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func serve(port string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			io.Copy(connection, connection)
		}()
	}
}

func exchange(port string, seed int64, size int) error {
	connection, err := net.DialTimeout("tcp", "127.0.0.1:"+port, 20*time.Second)
	if err != nil {
		return err
	}
	defer connection.Close()
	connection.SetDeadline(time.Now().Add(60 * time.Second))
	sent := make([]byte, size)
	rand.New(rand.NewSource(seed)).Read(sent)
	written := make(chan error, 1)
	go func() {
		_, err := connection.Write(sent)
		if err == nil {
			err = connection.(*net.TCPConn).CloseWrite()
		}
		written <- err
	}()
	back, err := io.ReadAll(connection)
	if err != nil {
		return err
	}
	if err := <-written; err != nil {
		return err
	}
	if !bytes.Equal(sent, back) {
		return fmt.Errorf("%d bytes came back of %d, or other ones", len(back), len(sent))
	}
	return nil
}

func send(port string, count, size int) error {
	results := make(chan error)
	for i := 0; i < count; i++ {
		go func(seed int64) { results <- exchange(port, seed, size) }(int64(i))
	}
	for i := 0; i < count; i++ {
		if err := <-results; err != nil {
			return err
		}
	}
	fmt.Println("ok", count)
	return nil
}

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "serve":
		die(serve(os.Args[2]))
	case len(os.Args) == 5 && os.Args[1] == "send":
		count, _ := strconv.Atoi(os.Args[3])
		size, _ := strconv.Atoi(os.Args[4])
		if err := send(os.Args[2], count, size); err != nil {
			die(err)
		}
	default:
		os.Exit(2)
	}
}
