import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Random;

/**
 * An echo server and its client, each of one thread with a selector.
 *
 * <pre>
 * NioEcho serve PORT             echoes what each connection sends
 * NioEcho send PORT COUNT SIZE   COUNT connections at once, each sends SIZE bytes and checks the echo; prints "ok COUNT"
 * </pre>
 */
public class NioEcho {
    private static InetSocketAddress address(String port) throws IOException {
        return new InetSocketAddress(InetAddress.getByName("127.0.0.1"), Integer.parseInt(port));
    }

    private static void serve(String port) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(address(port), 128);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        while (true) {
            selector.select(key -> {
                try {
                    if (key.isAcceptable()) {
                        SocketChannel accepted = listener.accept();
                        if (accepted == null) return;
                        accepted.configureBlocking(false);
                        accepted.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(1 << 16));
                    } else {
                        echo(key);
                    }
                } catch (IOException e) {
                    throw new RuntimeException(e);
                }
            });
        }
    }

    /** Does not read on before all is written. */
    private static void echo(SelectionKey key) throws IOException {
        SocketChannel channel = (SocketChannel) key.channel();
        ByteBuffer buffer = (ByteBuffer) key.attachment();
        if (key.isReadable()) {
            if (channel.read(buffer) < 0) {
                channel.close();
                return;
            }
            buffer.flip();
        }
        channel.write(buffer);
        if (buffer.hasRemaining()) {
            key.interestOps(SelectionKey.OP_WRITE);
        } else {
            buffer.clear();
            key.interestOps(SelectionKey.OP_READ);
        }
    }

    private static final class Exchange {
        final ByteBuffer sent;
        final ByteBuffer got;

        Exchange(int number, int size) {
            byte[] bytes = new byte[size];
            new Random(number).nextBytes(bytes);
            sent = ByteBuffer.wrap(bytes);
            got = ByteBuffer.allocate(size + 1);
        }

        /** False: the connection has ended, and all was right. */
        boolean go(SelectionKey key) throws IOException {
            SocketChannel channel = (SocketChannel) key.channel();
            if (key.isConnectable()) {
                channel.finishConnect();
                key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                return true;
            }
            if (key.isWritable()) {
                channel.write(sent);
                if (!sent.hasRemaining()) {
                    channel.shutdownOutput();
                    key.interestOps(SelectionKey.OP_READ);
                }
            }
            if (!got.hasRemaining()) throw new IOException("more came back");
            if (key.isReadable() && channel.read(got) < 0) {
                if (!Arrays.equals(sent.array(), Arrays.copyOf(got.array(), got.position()))) throw new IOException("other bytes came back");
                channel.close();
                return false;
            }
            return true;
        }
    }

    private static void send(String port, int count, int size) throws IOException {
        Selector selector = Selector.open();
        for (int i = 0; i < count; ++i) {
            SocketChannel channel = SocketChannel.open();
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
            channel.configureBlocking(false);
            boolean connected = channel.connect(address(port));
            channel.register(selector, connected ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_CONNECT, new Exchange(i, size));
        }
        for (int open = count; open > 0;) {
            selector.select();
            for (SelectionKey key : selector.selectedKeys()) {
                if (!((Exchange) key.attachment()).go(key)) --open;
            }
            selector.selectedKeys().clear();
        }
        System.out.println("ok " + count);
    }

    public static void main(String[] arguments) throws IOException {
        if (arguments[0].equals("serve")) serve(arguments[1]);
        else send(arguments[1], Integer.parseInt(arguments[2]), Integer.parseInt(arguments[3]));
    }
}
