import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Runs code of many kinds until it is ended: loops, maps, strings, streams, lambdas, recursion. */
public class Work {
    interface Operation {
        long run(int n);
    }

    static long sink;

    static long squares(int n) {
        long sum = 0;
        for (int i = 0; i < n; i++) {
            sum += (long) i * i;
        }
        return sum;
    }

    static long twice(Operation operation, int n) {
        return operation.run(n) + operation.run(n / 2);
    }

    static long words(int n) {
        Map<String, Integer> counts = new HashMap<>();
        for (int i = 0; i < n; i++) {
            counts.merge("word" + i % 97, 1, Integer::sum);
        }
        return counts.size();
    }

    static long depth(int n) {
        return n == 0 ? squares(100) : depth(n - 1) + 1;
    }

    long field = 3;

    synchronized long locked(int[] values, String text) {
        for (int value : values) {
            field += value * (long) text.length();
        }
        return field;
    }

    public static void main(String[] arguments) {
        Work work = new Work();
        List<Long> results = new ArrayList<>();
        while (true) {
            results.add(twice(n -> squares(n) + 1, 2000));
            results.add(words(500));
            results.add(depth(50));
            results.add(IntStream.range(0, 500).map(i -> i ^ 21).filter(i -> i % 3 == 0).asLongStream().sum());
            results.add(work.locked(new int[] {1, 2, 3}, "text"));
            results.forEach(result -> sink += result);
            results.clear();
        }
    }
}
