import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.Arrays;
import java.util.Random;

/** Sends a million bytes to a server of this process and back, by sockets and by channels. The configuration names its port as SDP's. */
public class SdpEcho {
    private static final int SIZE = 1_000_000;

    private static byte[] data(long seed) {
        byte[] bytes = new byte[SIZE];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static void check(byte[] sent, byte[] got, String how) {
        if (!Arrays.equals(sent, got)) throw new AssertionError(how + ": other bytes came back");
        System.out.println(how + " ok");
    }

    private static Thread run(Body body) {
        Thread thread = new Thread(() -> {
            try {
                body.run();
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        thread.start();
        return thread;
    }

    private interface Body {
        void run() throws Exception;
    }

    private static void sockets(InetAddress host, int port) throws Exception {
        try (ServerSocket listener = new ServerSocket()) {
            listener.setReuseAddress(true);
            listener.bind(new InetSocketAddress(host, port));
            Thread server = run(() -> {
                try (Socket socket = listener.accept()) {
                    byte[] bytes = new DataInputStream(socket.getInputStream()).readNBytes(SIZE);
                    socket.getOutputStream().write(bytes);
                }
            });
            try (Socket socket = new Socket(host, port)) {
                socket.setTcpNoDelay(true);
                socket.setSoTimeout(20_000);
                byte[] sent = data(1);
                Thread writer = run(() -> new DataOutputStream(socket.getOutputStream()).write(sent));
                check(sent, socket.getInputStream().readNBytes(SIZE), "sockets");
                writer.join();
            }
            server.join();
        }
    }

    private static byte[] readAll(SocketChannel channel) throws Exception {
        ByteBuffer buffer = ByteBuffer.allocateDirect(SIZE);
        while (buffer.hasRemaining() && channel.read(buffer) >= 0) {
        }
        buffer.flip();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    private static void writeAll(SocketChannel channel, byte[] bytes) throws Exception {
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        while (buffer.hasRemaining()) channel.write(buffer);
    }

    private static void channels(InetAddress host, int port) throws Exception {
        try (ServerSocketChannel listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(host, port));
            Thread server = run(() -> {
                try (SocketChannel channel = listener.accept()) {
                    writeAll(channel, readAll(channel));
                }
            });
            try (SocketChannel channel = SocketChannel.open(new InetSocketAddress(host, port))) {
                byte[] sent = data(2);
                Thread writer = run(() -> writeAll(channel, sent));
                check(sent, readAll(channel), "channels");
                writer.join();
            }
            server.join();
        }
    }

    public static void main(String[] arguments) throws Exception {
        InetAddress host = InetAddress.getByName("127.0.0.1");
        int port = Integer.parseInt(arguments[0]);
        sockets(host, port);
        channels(host, port);
    }
}
